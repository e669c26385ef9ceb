//! The programs, as data: what they need, how they are started, who loads them, and what they print.

/// A program under a load. Its lines are for `sh`, in a directory of the program's own, with these variables:
/// `$DURATION` in whole seconds, `$OPERATIONS` as planned for that time, and `$AS_ROOT`, the option that
/// servers demand of root.
pub struct Program {
    pub name: &'static str,
    /// For people.
    pub load: &'static str,
    /// Debian's package, whose version is shown.
    pub package: &'static str,
    pub needs: &'static [Need],
    /// Sources of ours, written to the directory.
    pub files: &'static [(&'static str, &'static str)],
    /// Run once, without us.
    pub prepare: &'static str,
    /// Run before each run, without us.
    pub before: &'static str,
    /// What is measured, after `"$@"`: `retrial run …`, or nothing.
    pub run: &'static str,
    pub loader: Loader,
    pub operations: Operations,
}

/// A file that must be there, as a path or as a command, and the packages that have it.
pub struct Need {
    pub file: &'static str,
    pub packages: &'static str,
}

/// Who loads the program.
pub enum Loader {
    /// It loads itself, and ends.
    Itself,
    /// A line, run once the server listens at [`SOCKET`]. The server is told to end afterwards.
    Line(&'static str),
    /// The connections of [`super::memcached`], likewise.
    Memcached,
}

/// How many operations there were.
pub enum Operations {
    /// The number per second that stands before this text in what the load printed.
    Printed(&'static str),
    /// As many as were planned, at this number per second; the time that they took is the result.
    Planned(u32),
}

/// Where a server that others load listens, in its directory.
pub const SOCKET: &str = "socket";

const fn need(file: &'static str, packages: &'static str) -> Need {
    Need { file, packages }
}

const CC: Need = need("cc", "gcc libc6-dev");
const MEMCACHED: Need = need("memcached", "memcached");
const DB_BENCH: Need = need("db_bench", "rocksdb-tools");
const SQLITE: Need = need("/usr/include/sqlite3.h", "libsqlite3-dev");

/// What C programs of ours are built with.
macro_rules! cc {
    ($name:literal, $library:literal) => {
        concat!("cc -O2 -pthread -o ", $name, " ", $name, ".c -l", $library)
    };
}

macro_rules! source {
    ($name:literal) => {
        ($name, include_str!(concat!("../../programs/", $name)))
    };
}

macro_rules! db_bench {
    ($benchmark:literal) => {
        concat!(
            "db_bench --db=db --num=500000 --threads=16 --disable_wal=true --progress_reports=false --benchmarks=",
            $benchmark
        )
    };
}

macro_rules! mariadbd {
    () => {
        "mariadbd --defaults-file=server.cnf $AS_ROOT --datadir=$PWD/data --socket=$PWD/socket --pid-file=$PWD/pid"
    };
}

macro_rules! sysbench {
    ($command:literal) => {
        concat!(
            "sysbench oltp_read_write --db-driver=mysql --mysql-socket=$PWD/socket --mysql-user=root --mysql-db=test",
            " --tables=4 --table-size=5000 ",
            $command
        )
    };
}

pub const PROGRAMS: [Program; 14] = [
    Program {
        name: "memcached",
        load: "4 threads; 8 connections, 9 gets to a set, 32 commands at a time",
        package: "memcached",
        needs: &[MEMCACHED],
        files: &[],
        prepare: "",
        before: "rm -f socket",
        run: r#"exec "$@" memcached -t 4 -s socket $AS_ROOT"#,
        loader: Loader::Memcached,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "rocksdb-write",
        load: "db_bench fillrandom, 16 threads",
        package: "rocksdb-tools",
        needs: &[DB_BENCH],
        files: &[],
        prepare: "",
        before: "rm -rf db",
        run: concat!(r#"exec "$@" "#, db_bench!("fillrandom --duration=$DURATION")),
        loader: Loader::Itself,
        operations: Operations::Printed("ops/sec "),
    },
    Program {
        name: "rocksdb-read",
        load: "db_bench readrandom, 16 threads, one shard of the cache",
        package: "rocksdb-tools",
        needs: &[DB_BENCH],
        files: &[],
        prepare: concat!(db_bench!("fillseq"), " --threads=1"),
        before: "",
        run: concat!(
            r#"exec "$@" "#,
            db_bench!("readrandom --use_existing_db=true --duration=$DURATION --cache_numshardbits=0")
        ),
        loader: Loader::Itself,
        operations: Operations::Printed("ops/sec "),
    },
    Program {
        name: "mariadb",
        load: "sysbench oltp_read_write, 32 connections; operations are transactions",
        package: "mariadb-server",
        needs: &[
            need("mariadbd", "mariadb-server"),
            need("mariadb-install-db", "mariadb-server"),
            need("sysbench", "sysbench"),
        ],
        files: &[source!("server.cnf")],
        prepare: concat!(
            "mariadb-install-db --no-defaults $AS_ROOT --datadir=$PWD/data --auth-root-authentication-method=normal\n",
            mariadbd!(),
            " & until test -S socket; do kill -0 $!; sleep 0.1; done; ",
            sysbench!("prepare"),
            "; kill $!; wait $!"
        ),
        before: "rm -f socket",
        run: concat!(r#"exec "$@" "#, mariadbd!()),
        loader: Loader::Line(sysbench!("--threads=32 --time=$DURATION run")),
        operations: Operations::Printed("per sec."),
    },
    Program {
        name: "lmdb",
        load: "8 processes, write transactions of one record; waits are those for the write lock",
        package: "liblmdb0",
        needs: &[CC, need("/usr/include/lmdb.h", "liblmdb-dev")],
        files: &[source!("lmdb.c")],
        prepare: cc!("lmdb", "lmdb"),
        before: "rm -rf data; mkdir data",
        run: r#"exec "$@" ./lmdb data 8 $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "mdb_load",
        load: "8 processes load records into one environment",
        package: "lmdb-utils",
        needs: &[need("mdb_load", "lmdb-utils")],
        files: &[source!("dump.awk"), source!("load.sh")],
        prepare: "awk -v records=$((OPERATIONS / 8)) -f dump.awk > dump",
        before: "rm -rf data; mkdir data",
        run: r#"exec "$@" sh load.sh 8"#,
        loader: Loader::Itself,
        operations: Operations::Planned(800_000),
    },
    Program {
        name: "sqlite-own",
        load: "16 threads with a connection each, WAL, 9 reads to a write",
        package: "libsqlite3-0",
        needs: &[CC, SQLITE],
        files: &[source!("sqlite.c")],
        prepare: cc!("sqlite", "sqlite3"),
        before: "rm -f data*",
        run: r#"exec "$@" ./sqlite data own 16 $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "sqlite-one",
        load: "16 threads on one connection, 9 reads to a write",
        package: "libsqlite3-0",
        needs: &[CC, SQLITE],
        files: &[source!("sqlite.c")],
        prepare: cc!("sqlite", "sqlite3"),
        before: "rm -f data*",
        run: r#"exec "$@" ./sqlite data one 16 $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "berkeleydb",
        load: "4 processes of 4 threads on one environment, 9 reads to a write",
        package: "libdb5.3",
        needs: &[CC, need("/usr/include/db.h", "libdb-dev")],
        files: &[source!("bdb.c")],
        prepare: cc!("bdb", "db"),
        before: "rm -rf data; mkdir data",
        run: r#"exec "$@" ./bdb data 4 4 $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "leveldb",
        load: "16 threads on one database, jemalloc, 9 reads to a write",
        package: "libleveldb1d",
        needs: &[
            CC,
            need("/usr/include/leveldb/c.h", "libleveldb-dev"),
            need("/usr/include/jemalloc/jemalloc.h", "libjemalloc-dev"),
        ],
        files: &[source!("leveldb.c")],
        prepare: concat!(cc!("leveldb", "leveldb"), " -ljemalloc"),
        before: "rm -rf data",
        run: r#"exec "$@" ./leveldb data 16 $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "barrier",
        load: "8 threads in steps with a barrier of a mutex and a condition between, as in streamcluster",
        package: "libc6",
        needs: &[CC],
        files: &[source!("barrier.c")],
        prepare: cc!("barrier", "c"),
        before: "",
        run: r#"exec "$@" ./barrier 8 $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "python",
        load: "8 threads hand over items through a queue",
        package: "python3",
        needs: &[need("/usr/bin/python3", "python3")],
        files: &[source!("handoff.py")],
        prepare: "",
        before: "",
        run: r#"exec "$@" /usr/bin/python3 handoff.py 4 $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "java",
        load: "16 threads hand over items through a queue",
        package: "openjdk-17-jre-headless",
        needs: &[need("java", "openjdk-17-jdk-headless"), need("javac", "openjdk-17-jdk-headless")],
        files: &[source!("Queue.java")],
        prepare: "javac Queue.java",
        before: "",
        run: r#"exec "$@" java Queue 8 $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
    Program {
        name: "node",
        load: "64 calls to the file system under way in a pool of 8 threads",
        package: "nodejs",
        needs: &[need("node", "nodejs")],
        files: &[source!("pool.js")],
        prepare: "",
        before: "",
        run: r#"UV_THREADPOOL_SIZE=8 exec "$@" node pool.js $DURATION"#,
        loader: Loader::Itself,
        operations: Operations::Printed("ops/s"),
    },
];
