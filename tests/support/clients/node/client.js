// mysql2 and Sequelize against a server: prints one JSON object, a fact for each name, or the error of it.
const { createRequire } = require("node:module");
const load = createRequire(process.argv[3] + "/");
const mysql = load("mysql2/promise");
const { Sequelize, DataTypes } = load("sequelize");

const address = { host: "127.0.0.1", port: Number(process.argv[2]), user: "root", database: "db" };
const facts = {};

async function fact(name, run) {
  try {
    facts[name] = await run();
  } catch (error) {
    const cause = error.original ?? error;
    facts[name] = { errno: cause.errno, state: cause.sqlState, message: cause.message };
  }
}

async function mysql2() {
  const link = await mysql.createConnection({ ...address, dateStrings: true });
  await fact("text", async () => (await link.query("SELECT * FROM t ORDER BY k"))[0]);
  await fact("binary", async () => (await link.execute("SELECT * FROM t WHERE k = ? LIMIT ?", [1, "1"]))[0]);
  await fact("insert", async () => {
    const values = [10, "it's \\ ünï", 1.25, "2024-02-03", "2024-02-03 04:05:06", "1.50", true];
    const [done] = await link.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", values);
    return [done.affectedRows, (await link.execute("SELECT * FROM t WHERE k = ?", [10]))[0][0]];
  });
  await fact("bulk", async () => (await link.query("INSERT INTO t (k, v) VALUES ?", [[[11, "a"], [12, null]]]))[0].affectedRows);
  await fact("insertId", async () => {
    await link.query("CREATE TABLE ids (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)");
    const found = [];
    for (const values of ["(1)", "(2), (3)"]) found.push((await link.query(`INSERT INTO ids (v) VALUES ${values}`))[0].insertId);
    found.push((await link.execute("INSERT INTO ids (id, v) VALUES (?, ?)", [70, 7]))[0].insertId);
    found.push((await link.execute("UPDATE ids SET v = 0 WHERE id = 1"))[0].insertId);
    found.push((await link.query("SELECT LAST_INSERT_ID() AS id"))[0][0].id);
    await link.query("DROP TABLE ids");
    return found;
  });
  await fact("rollback", async () => {
    await link.beginTransaction();
    await link.query("DELETE FROM t WHERE k > 9");
    await link.rollback();
    return (await link.query("SELECT count(*) AS n FROM t"))[0][0].n;
  });
  await fact("unknown", async () => link.query("SELECT * FROM nowhere"));
  await link.end();
  const pool = mysql.createPool({ ...address, connectionLimit: 3 });
  await fact("pool", async () => Promise.all([1, 2, 3, 4].map(async (n) => (await pool.query("SELECT ? AS x", [n]))[0][0].x)));
  await pool.end();
}

async function sequelize() {
  const orm = new Sequelize("db", "root", "", { ...address, dialect: "mysql", logging: false });
  const User = orm.define("User", {
    id: { type: DataTypes.BIGINT, primaryKey: true }, name: DataTypes.STRING(50), born: DataTypes.DATEONLY,
    score: DataTypes.DOUBLE, ok: DataTypes.BOOLEAN, note: DataTypes.TEXT, amount: DataTypes.DECIMAL(10, 2),
  }, { tableName: "users", timestamps: false });
  const plain = async (where) => (await User.findAll({ where, order: [["id", "ASC"]], raw: true }));
  await fact("sync", async () => { await User.sync(); return true; });
  await fact("create", async () => {
    await User.create({ id: 1, name: "a", born: "2024-01-02", score: 1.5, ok: true, note: "x", amount: "1.20" });
    await User.bulkCreate([{ id: 2, name: "b" }, { id: 3, name: "c" }]);
    return plain({ id: 1 });
  });
  await fact("change", async () => {
    await User.update({ name: "z" }, { where: { id: 2 } });
    await User.destroy({ where: { id: 3 } });
    await User.upsert({ id: 2, score: 2.5 });
    await User.upsert({ id: 4, name: "new" });
    return (await plain({})).map((row) => [row.id, row.name, row.score]);
  });
  await fact("transaction", async () => orm.transaction({ isolationLevel: "READ COMMITTED" }, async (transaction) => {
    await User.create({ id: 9 }, { transaction });
    return User.count({ transaction });
  }));
  await fact("tables", async () => orm.getQueryInterface().showAllTables());
  await fact("index", async () => (await orm.getQueryInterface().showIndex("users")).map((index) => [index.tableName, index.primary, index.fields[0].attribute]));
  await fact("types", async () => Object.entries(await orm.getQueryInterface().describeTable("users")).map(([name, column]) => [name, column.type, column.allowNull]));
  await fact("drop", async () => { await User.drop(); return true; });
  const Made = orm.define("Made", {
    id: { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true }, name: DataTypes.STRING(50),
  }, { tableName: "made", timestamps: false });
  await fact("ids", async () => {
    await Made.sync();
    const one = await Made.create({ name: "a" });
    const more = await Made.bulkCreate([{ name: "b" }, { name: "c" }]);
    const own = await Made.create({ id: 90, name: "d" });
    await one.update({ name: "changed" });
    const stored = (await Made.findAll({ order: [["id", "ASC"]], raw: true })).map((row) => [Number(row.id), row.name]);
    await Made.drop();
    return [[one, ...more, own].map((row) => row.id && Number(row.id)), stored];
  });
  await orm.close();
}

mysql2().then(sequelize).then(() => console.log(JSON.stringify(facts))).catch((error) => {
  console.error(error);
  process.exit(1);
});
