//! The crate mysql against a server: prints a fact a line, `name=value`.
use mysql::prelude::*;
use mysql::{params, Error, Opts, Pool, TxOpts, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("a port")?;
    let pool = Pool::new(Opts::from_url(&format!("mysql://root@127.0.0.1:{port}/db"))?)?;
    let mut link = pool.get_conn()?;
    let rows: Vec<(i64, Option<String>, Option<f64>)> = link.query("SELECT k, v, d FROM t ORDER BY k")?;
    println!("rows={rows:?}");
    link.exec_drop(
        "INSERT INTO t (k, v, d, b) VALUES (:k, :v, :d, :b)",
        params! { "k" => 10, "v" => "it's \\ ünï", "d" => 1.25, "b" => true },
    )?;
    println!("affected={}", link.affected_rows());
    link.exec_batch("INSERT INTO t (k, v) VALUES (?, ?)", [(11, Some("a")), (12, None)])?;
    let found: Option<(String, f64, bool)> = link.exec_first("SELECT v, d, b FROM t WHERE k = ?", (10,))?;
    println!("found={found:?}");
    let statement = link.prep("SELECT k, v, ts FROM t WHERE k > ?")?;
    let names: Vec<_> = statement.columns().iter().map(|column| column.name_str().into_owned()).collect();
    println!("columns={names:?}");
    link.query_drop("CREATE TABLE ids (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)")?;
    link.exec_drop("INSERT INTO ids (v) VALUES (?)", (1,))?;
    let first = link.last_insert_id();
    link.query_drop("INSERT INTO ids (v) VALUES (2), (3)")?;
    println!("ids={first},{}", link.last_insert_id());
    link.query_drop("DROP TABLE ids")?;
    let mut transaction = link.start_transaction(TxOpts::default())?;
    transaction.query_drop("DELETE FROM t WHERE k > 9")?;
    let inside: Option<u64> = transaction.query_first("SELECT count(*) FROM t")?;
    transaction.rollback()?;
    let after: Option<u64> = link.query_first("SELECT count(*) FROM t")?;
    println!("rollback={inside:?},{after:?}");
    let values: Vec<Value> = link.query_first::<mysql::Row, _>("SELECT dd, ts, n FROM t WHERE k = 1")?.map(|row| row.unwrap()).unwrap_or_default();
    println!("values={}", values.iter().map(|value| value.as_sql(false)).collect::<Vec<_>>().join(","));
    if let Err(Error::MySqlError(error)) = link.query_drop("SELECT * FROM nowhere") {
        println!("unknown={},{}", error.code, error.state);
    }
    Ok(())
}
