"""Backups of the tables of a database, and their restoration: files, manifest, jobs.

A target is a local directory or a URI of an object store:

    files/<file>-<digest>.<suffix>          segment files and key indexes; shared by all backups of the target
    manifests/<label>.<timestamp>.<db>      what one backup consists of (backup.manifest); written last
"""
