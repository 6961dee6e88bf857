import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.functions.ScalarFunction;

/** Runs Flink SQL in this process: the mode, then statements; prints what they return. */
public final class FlinkSql {
  /** Returns its argument; fails once, at 120. */
  public static final class FailOnce extends ScalarFunction {
    private static final AtomicBoolean FAILED = new AtomicBoolean();

    public Long eval(Long value) {
      if (value == 120 && FAILED.compareAndSet(false, true)) {
        System.out.println("failed once");
        throw new IllegalStateException("a planned failure");
      }
      return value;
    }
  }

  public static void main(String[] arguments) throws Exception {
    Configuration options = new Configuration();
    options.setString("rest.address", "127.0.0.1");
    options.setString("rest.bind-address", "127.0.0.1");
    options.setString("rest.bind-port", "0");
    options.setString("parallelism.default", "1");
    options.setString("execution.checkpointing.interval", "500 ms");
    options.setString("restart-strategy.type", "fixed-delay");
    options.setString("restart-strategy.fixed-delay.attempts", "3");
    options.setString("restart-strategy.fixed-delay.delay", "100 ms");
    options.setString("table.local-time-zone", "UTC");
    EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance().withConfiguration(options);
    boolean isBatch = "batch".equals(arguments[0]);
    TableEnvironment tables = TableEnvironment.create((isBatch ? settings.inBatchMode() : settings.inStreamingMode()).build());
    tables.createTemporarySystemFunction("fail_once", FailOnce.class);
    for (int i = 1; i < arguments.length; i++) {
      TableResult result = tables.executeSql(arguments[i]);
      if (arguments[i].startsWith("INSERT")) {
        result.await();
      } else {
        result.print();
      }
    }
  }
}
