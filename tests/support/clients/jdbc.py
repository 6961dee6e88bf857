"""JDBC drivers in one JVM, called from Python: py4j comes with pyspark, the drivers from `jdbc_jars.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.kafka.jars import java, listed_jars
from tests.support.spark.spark_cluster import QUICK_JVM

CLIENTS: Final = Path(__file__).parent
_LIST: Final = CLIENTS / "jdbc_jars.txt"
# Name -> module of its jar, class, and scheme of its addresses.
DRIVERS: Final = {
    "connector_j_9": ("mysql-connector-j", "com.mysql.cj.jdbc.Driver", "jdbc:mysql"),
    "connector_j_5": ("mysql-connector-java", "com.mysql.jdbc.Driver", "jdbc:mysql"),
    "mariadb": ("mariadb-java-client", "org.mariadb.jdbc.Driver", "jdbc:mariadb"),
}


def driver_jar(name: str) -> Path:
    """The jar of a driver.

    Raises:
        JarsUnreachableError: it is not here and cannot be fetched.
    """
    module, _, _ = DRIVERS[name]
    return next(path for path in listed_jars(_LIST, "jdbc") if path.name.startswith(f"{module}-"))


@dataclass
class Drivers:
    """A JVM with the drivers, each in a class loader of its own: two of them have classes of one name."""

    gateway: Any

    def __post_init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def connect(self, name: str, port: int, database: str = "db", **properties: str) -> Any:
        """Returns a `java.sql.Connection` of the user root."""
        jvm = self.gateway.jvm
        given = jvm.java.util.Properties()
        for key, value in {"user": "root", "password": "", **properties}.items():
            given.setProperty(key, value)
        return self._driver(name).connect(f"{DRIVERS[name][2]}://127.0.0.1:{port}/{database}", given)

    def strings(self, *values: str) -> Any:
        """Returns a `String[]`."""
        made = self.gateway.new_array(self.gateway.jvm.java.lang.String, len(values))
        for i, value in enumerate(values):
            made[i] = value
        return made

    def _driver(self, name: str) -> Any:
        if name not in self._loaded:
            jvm, array = self.gateway.jvm, self.gateway.new_array
            urls = array(jvm.java.net.URL, 1)
            urls[0] = jvm.java.io.File(str(driver_jar(name))).toURI().toURL()
            found = jvm.java.net.URLClassLoader(urls).loadClass(DRIVERS[name][1])
            constructor = found.getDeclaredConstructor(array(jvm.java.lang.Class, 0))
            self._loaded[name] = constructor.newInstance(array(jvm.java.lang.Object, 0))
        return self._loaded[name]


@contextmanager
def drivers() -> Iterator[Drivers]:
    """Starts the JVM, and ends it."""
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    port = launch_gateway(jarpath=str(jar), die_on_exit=True, javaopts=QUICK_JVM.split(), java_path=java())
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield Drivers(gateway)
    finally:
        gateway.shutdown()


def rows(answer: Any) -> list[dict[str, str | None]]:
    """Reads a `java.sql.ResultSet` to its end, as texts by label, and closes it."""
    described = answer.getMetaData()
    labels = [described.getColumnLabel(i) for i in range(1, described.getColumnCount() + 1)]
    found = []
    while answer.next():
        found.append({label: answer.getString(i) for i, label in enumerate(labels, 1)})
    answer.close()
    return found
