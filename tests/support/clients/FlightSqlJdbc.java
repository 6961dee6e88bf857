import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

/** What a program does with the JDBC driver of Arrow Flight SQL; prints a line for each step. */
public final class FlightSqlJdbc {
    private static Connection open(String port, String user, String password) throws SQLException {
        Properties given = new Properties();
        given.setProperty("user", user);
        given.setProperty("password", password);
        given.setProperty("useEncryption", "false");
        return DriverManager.getConnection("jdbc:arrow-flight-sql://127.0.0.1:" + port, given);
    }

    private static String joined(ResultSet rows) throws SQLException {
        StringBuilder found = new StringBuilder();
        try (rows) {
            int columns = rows.getMetaData().getColumnCount();
            while (rows.next()) {
                for (int column = 1; column <= columns; column++) {
                    found.append(rows.getString(column)).append(column < columns ? "," : ";");
                }
            }
        }
        return found.toString();
    }

    private static String named(ResultSet rows, String... names) throws SQLException {
        StringBuilder found = new StringBuilder();
        try (rows) {
            while (rows.next()) {
                for (String name : names) {
                    found.append(rows.getString(name)).append(name == names[names.length - 1] ? ";" : " ");
                }
            }
        }
        return found.toString();
    }

    private interface Step {
        String run() throws Exception;
    }

    private static void step(String name, Step step) {
        String found;
        try {
            found = step.run();
        } catch (Throwable error) {
            found = "failed: " + error;
            if (System.getenv("TRACE") != null) {
                error.printStackTrace();
            }
        }
        System.out.println(name + "=" + found.replace("\n", " "));
    }

    public static void main(String[] given) throws Exception {
        String port = given[0];
        step("wrong password", () -> {
            try (Connection other = open(port, "root", "wrong")) {
                return "connected";
            } catch (SQLException error) {
                return "refused";
            }
        });
        try (Connection connection = open(port, given[1], given[2])) {
            DatabaseMetaData about = connection.getMetaData();
            step("product", about::getDatabaseProductName);
            step("schemas", () -> joined(about.getSchemas(null, "d%")));
            step("tables", () -> named(about.getTables(null, "db", "%", new String[] {"TABLE"}), "TABLE_NAME"));
            step("columns", () -> named(about.getColumns(null, "db", "t", "%"), "COLUMN_NAME", "TYPE_NAME"));
            step("keys", () -> named(about.getPrimaryKeys(null, "db", "t"), "COLUMN_NAME"));
            try (Statement statement = connection.createStatement()) {
                step("select", () -> joined(statement.executeQuery("SELECT k, v FROM db.t WHERE k < 3 ORDER BY k")));
                step("update", () -> "" + statement.executeUpdate("UPDATE db.t SET v = 5 WHERE k < 2"));
                step("error", () -> {
                    try {
                        statement.executeQuery("SELECT * FROM db.nope");
                        return "none";
                    } catch (SQLException error) {
                        return error.getMessage().contains("nope") ? "names it" : error.getMessage();
                    }
                });
            }
            step("parameters", () -> {
                String text = "SELECT k, v FROM db.t WHERE k BETWEEN ? AND ? ORDER BY k";
                try (PreparedStatement prepared = connection.prepareStatement(text)) {
                    prepared.setLong(1, 1);
                    prepared.setLong(2, 2);
                    String first = joined(prepared.executeQuery());
                    prepared.setLong(1, 7);
                    prepared.setLong(2, 7);
                    return first + "|" + joined(prepared.executeQuery());
                }
            });
            step("insert", () -> {
                String text = "INSERT INTO db.typed VALUES (?, ?, ?, ?, ?, ?)";
                try (PreparedStatement prepared = connection.prepareStatement(text)) {
                    prepared.setInt(1, 1);
                    prepared.setString(2, "it's");
                    prepared.setBigDecimal(3, new BigDecimal("12.50"));
                    prepared.setDouble(4, 0.5);
                    prepared.setDate(5, java.sql.Date.valueOf("2024-02-29"));
                    prepared.setBoolean(6, true);
                    return "" + prepared.executeUpdate();
                }
            });
            step("null", () -> {
                String text = "INSERT INTO db.typed (k, s) VALUES (?, ?)";
                try (PreparedStatement prepared = connection.prepareStatement(text)) {
                    prepared.setInt(1, 2);
                    prepared.setNull(2, java.sql.Types.VARCHAR);
                    return "" + prepared.executeUpdate();
                }
            });
            step("batch", () -> {
                String text = "INSERT INTO db.t VALUES (?, ?)";
                try (PreparedStatement prepared = connection.prepareStatement(text)) {
                    for (int number = 0; number < 3; number++) {
                        prepared.setLong(1, 9000 + number);
                        prepared.setInt(2, number);
                        prepared.addBatch();
                    }
                    return "" + java.util.Arrays.stream(prepared.executeBatch()).sum();
                }
            });
        }
    }
}
