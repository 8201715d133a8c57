"""A meta-protocol client that others wrote, against a server on 127.0.0.1. Usage: meta_client.py PORT"""

import sys

from meta_memcache import CacheClient, Key, ServerAddress
from meta_memcache.configuration import LeasePolicy, RecachePolicy, StalePolicy, connection_pool_factory_builder


def client(port: int) -> CacheClient:
    return CacheClient.cache_client_from_servers(
        servers=[ServerAddress(host="127.0.0.1", port=port)],
        connection_pool_factory_fn=connection_pool_factory_builder(),
    )


def main(port: int) -> None:
    cache = client(port)

    assert cache.get(key=Key("absent")) is None
    assert cache.set(key=Key("plain"), value={"a": [1, 2]}, ttl=60)
    assert cache.get(key=Key("plain")) == {"a": [1, 2]}
    assert cache.set(key=Key("bytes"), value=b"\x00\r\nEN\r\n\xff", ttl=60)
    assert cache.get(key=Key("bytes")) == b"\x00\r\nEN\r\n\xff"
    # Keys that the text protocol cannot carry travel in base64.
    assert cache.set(key=Key("schl\u00fcssel mit leerzeichen"), value="wert", ttl=60)
    assert cache.get(key=Key("schl\u00fcssel mit leerzeichen")) == "wert"

    many = {Key(f"many{n}"): n for n in range(100)}
    for key, value in many.items():
        assert cache.set(key=key, value=value, ttl=60)
    assert cache.multi_get(keys=list(many) + [Key("absent")]) == {**many, Key("absent"): None}

    value, token = cache.get_cas(key=Key("plain"))
    assert value == {"a": [1, 2]} and token
    assert cache.set(key=Key("plain"), value=1, ttl=60, cas_token=token)
    assert not cache.set(key=Key("plain"), value=2, ttl=60, cas_token=token)
    assert cache.get(key=Key("plain")) == 1

    assert cache.delta_initialize_and_get(key=Key("count"), delta=1, initial_value=5, initial_ttl=60) == 5
    assert cache.delta_and_get(key=Key("count"), delta=3) == 8
    assert cache.delta_and_get(key=Key("count"), delta=-2) == 6
    assert cache.touch(key=Key("count"), ttl=30)
    assert not cache.touch(key=Key("absent"), ttl=30)

    # A lease: one client wins the right to fill a missing value.
    assert cache.get_or_lease(key=Key("lease"), lease_policy=LeasePolicy(ttl=5)) is None
    assert cache.set(key=Key("lease"), value="filled", ttl=60)
    assert cache.get_or_lease(key=Key("lease"), lease_policy=LeasePolicy(ttl=5)) == "filled"

    # Invalidated, not deleted: the stale value is served while one client recaches it.
    assert cache.invalidate(key=Key("lease"), stale_policy=StalePolicy(mark_stale_on_deletion_ttl=30))
    assert cache.get(key=Key("lease")) is None, "the first to ask wins the recache, and gets a miss"
    assert cache.get(key=Key("lease"), recache_policy=RecachePolicy(ttl=30)) == "filled"

    assert cache.delete(key=Key("plain"))
    assert cache.get(key=Key("plain")) is None
    print("meta client: all passed")


if __name__ == "__main__":
    main(int(sys.argv[1]))
