"""A store that is elsewhere: the handles of `seqstore.store` for a program on another host.

    with Store.connect("seqstore://host:8040", user="loader", password="..") as store:
        store.table("shop.orders").upsert(rows, label="2024-05-01")

The server is `seqstore serve` with the setting `flight_port`. `surface` lists the calls, `wire` the values
that travel, `connection` says what becomes of lost replies.
"""
