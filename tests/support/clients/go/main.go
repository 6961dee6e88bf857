// go-sql-driver against a server: prints one JSON object, a fact for each name.
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/go-sql-driver/mysql"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	facts := map[string]any{}
	for name, options := range map[string]string{"prepared": "parseTime=true", "interpolated": "parseTime=true&interpolateParams=true"} {
		db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(127.0.0.1:%s)/db?%s", os.Args[1], options))
		must(err)
		facts[name] = work(db)
		must(db.Close())
	}
	must(json.NewEncoder(os.Stdout).Encode(facts))
}

func work(db *sql.DB) map[string]any {
	found := map[string]any{}
	done, err := db.Exec("INSERT INTO t (k, v, d, dd, b) VALUES (?, ?, ?, ?, ?), (11, NULL, NULL, NULL, NULL)", 10, "it's \\ ünï", 1.25, "2024-02-03", true)
	must(err)
	found["affected"], err = done.RowsAffected()
	must(err)
	var v, n sql.NullString
	var d sql.NullFloat64
	var dd, ts sql.NullTime
	var b sql.NullBool
	must(db.QueryRow("SELECT v, d, dd, ts, n, b FROM t WHERE k = ?", 10).Scan(&v, &d, &dd, &ts, &n, &b))
	found["row"] = []any{v.String, d.Float64, dd.Time.Format("2006-01-02"), ts.Valid, n.Valid, b.Bool}
	tx, err := db.Begin()
	must(err)
	_, err = tx.Exec("DELETE FROM t WHERE k > 0")
	must(err)
	var inside, after int
	must(tx.QueryRow("SELECT count(*) FROM t").Scan(&inside))
	must(tx.Rollback())
	must(db.QueryRow("SELECT count(*) FROM t").Scan(&after))
	found["rollback"] = []int{inside, after}
	rows, err := db.Query("SELECT * FROM t WHERE k >= ? ORDER BY k", 1)
	must(err)
	kinds, err := rows.ColumnTypes()
	must(err)
	names := []string{}
	for _, kind := range kinds {
		names = append(names, kind.DatabaseTypeName())
	}
	found["types"] = names
	must(rows.Close())
	var unknown *mysql.MySQLError
	if errors.As(db.QueryRow("SELECT * FROM nowhere").Scan(), &unknown) {
		found["unknown"] = unknown.Number
	}
	_, err = db.Exec("CREATE TABLE ids (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)")
	must(err)
	ids := []int64{}
	for _, values := range []string{"(?)", "(2), (?)"} {
		done, err = db.Exec("INSERT INTO ids (v) VALUES "+values, 1)
		must(err)
		id, err := done.LastInsertId()
		must(err)
		ids = append(ids, id)
	}
	found["ids"] = ids
	_, err = db.Exec("DROP TABLE ids")
	must(err)
	_, err = db.Exec("DELETE FROM t WHERE k > 9")
	must(err)
	return found
}
