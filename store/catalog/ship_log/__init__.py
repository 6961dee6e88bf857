"""What a store ships of its catalog to another place: a base copy and a log of committed transactions.

    <place>/lease                          the leader and its epoch; replaced only by its ETag
    <place>/log/<position>                 commits, in order; created, never replaced (ship_log.log_object)
    <place>/base/<position>-<id>/<number>  records of the whole catalog as of a commit (ship_log.base_copy)
    <place>/base/<position>-<id>/manifest  written last
    <place>/followers/<id>                 the moment from which on a follower needs versions

1. A commit stores its write set (`outbox`) in the same LMDB transaction, under the next commit number.
2. The shipper sends what waits as the object at the next position of the log. The place refuses a name that
   exists, so a position has one writer. Segment files were uploaded before their commit, hence before the
   object that names them.
3. A new host raises the epoch in the lease and writes an object of the new epoch at the next position. The
   old host finds its next position taken by another epoch: it is fenced. No clock is read.
4. A reply may be lost. A writer that finds its position taken reads the object: its own commits there mean
   that an earlier try succeeded.
"""
