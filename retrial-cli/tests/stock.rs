//! Programs of Debian, unmodified, do under `retrial run` what they do without: the same exit code, the same
//! output, the same answers. What is not installed is left out with a line, or fails the test where
//! `CI_PROGRAMS=required`.

#[path = "kit/directory.rs"]
mod directory;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;
#[path = "kit/preload.rs"]
mod preload;

use directory::Directory;
use not_tested::not_tested;
use preload::library;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const RETRIAL: &str = env!("CARGO_BIN_EXE_retrial");

/// What the loader finds by name.
fn libraries() -> String {
    let output = Command::new("/sbin/ldconfig").arg("-p").output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Of Debian.
struct Stock {
    /// Commands and libraries, and the packages that have them.
    needs: &'static [(&'static str, &'static str)],
    /// For `sh`: run without us before `line`, in the same new directory.
    prepare: &'static str,
    /// For `sh`: the program after `"$@"`, which is `retrial run …` or nothing.
    line: &'static str,
    /// What a server is asked by each of [`CLIENTS`] at a time, at the socket `socket`; it hangs up after the
    /// last answer.
    ask: Option<fn(usize) -> String>,
}

/// Connections at a time.
const CLIENTS: usize = 8;

/// What can be compared.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    exit: Option<i32>,
    output: String,
    answers: Vec<String>,
}

impl Stock {
    fn does_the_same(&self) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path_has = |name: &str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
        let here = |name: &str| if name.contains(".so") { libraries().contains(name) } else { path_has(name) };
        let missing: Vec<_> = self.needs.iter().filter(|(name, _)| !here(name)).collect();
        if !missing.is_empty() {
            let (names, packages): (BTreeSet<&str>, BTreeSet<&str>) = missing.into_iter().copied().unzip();
            let list = |words: BTreeSet<&str>| Vec::from_iter(words).join(" ");
            return not_tested(format_args!("no {}: apt-get install {}", list(names), list(packages)));
        }
        let (plain, _) = self.run(false);
        assert_eq!(plain.exit, Some(0), "it works without us: {plain:?}");
        assert!(!plain.output.is_empty() || plain.answers.iter().all(|answer| !answer.is_empty()), "{plain:?}");
        let (ours, report) = self.run(true);
        assert_eq!(plain, ours);
        let report = report.unwrap();
        let calls = report["calls"].as_array().unwrap();
        let handled: u64 = calls.iter().map(|kind| kind["handled"].as_u64().unwrap()).sum();
        assert!(handled > 0, "no lock was handled: {report:#}");
    }

    fn run(&self, ours: bool) -> (Seen, Option<Value>) {
        let scratch = Scratch(Directory::new());
        let mut prepare = scratch.line(self.prepare, &[]);
        assert_eq!(prepare.end(), Some(0), "{}: {}", self.prepare, scratch.read("err"));
        let instance = scratch.instance();
        let under = [RETRIAL, "run", "--instance", &instance, "--report", "report.json", "--"];
        let mut running = scratch.line(self.line, if ours { &under } else { &[] });
        let answers = self.ask.map_or_else(Vec::new, |ask| {
            let answers = running.ask(&scratch.0.join("socket"), ask);
            running.send(libc::SIGTERM);
            answers
        });
        let exit = running.end();
        let output = scratch.read("out");
        eprintln!("{}", scratch.read("err"));
        let report = ours.then(|| serde_json::from_str(&scratch.read("report.json")).unwrap());
        (Seen { exit, output, answers }, report)
    }
}

/// A directory, whose name is that of an instance too.
struct Scratch(Directory);

impl Scratch {
    fn instance(&self) -> String {
        self.0.file_name().unwrap().to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.0.join(name)).unwrap_or_default()).into_owned()
    }

    /// Starts a line as a process group.
    fn line(&self, line: &str, under: &[&str]) -> Running {
        // SAFETY: cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let file = |name| fs::File::create(self.0.join(name)).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("set -e\n{line}"), "sh"]).args(under).current_dir(&*self.0).process_group(0);
        command.env("RETRIAL_PRELOAD_LIBRARY", library()).env_remove("LD_PRELOAD");
        command.env("AS_ROOT", if is_root { "--user=root" } else { "" }).env("HOME", &*self.0);
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        let follow = || {
            // Of a test that is killed, nothing stays.
            // SAFETY: takes numbers only; it cannot fail with this signal.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
            Ok(())
        };
        // SAFETY: nothing but a system call is made between fork and exec.
        unsafe { command.pre_exec(follow) };
        Running(command.spawn().unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // There only when `retrial run` was killed.
        let _ = fs::remove_file(format!("/dev/shm/retrial.{}", self.instance()));
    }
}

/// A line under way, whose group is killed at the end.
struct Running(Child);

impl Running {
    /// Steps of 10 ms that anything may take; steps, so that a machine that was stopped is not a failure.
    const STEPS: u32 = 30_000;

    fn until<T>(&mut self, what: &str, mut so: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..Self::STEPS {
            if let Some(value) = so(self) {
                return value;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("not within {} steps of 10 ms: {what}", Self::STEPS);
    }

    /// Its exit code.
    fn end(&mut self) -> Option<i32> {
        self.until("its end", |running| running.0.try_wait().unwrap()).code()
    }

    fn send(&self, signal: i32) {
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(i32::try_from(self.0.id()).unwrap(), signal) };
    }

    /// The answers to all clients, who ask at the same time.
    fn ask(&mut self, socket: &Path, ask: fn(usize) -> String) -> Vec<String> {
        self.until("it listens", |running| {
            assert_eq!(running.0.try_wait().unwrap(), None, "it ended before it listened");
            UnixStream::connect(socket).ok()
        });
        let answer = |client| {
            let mut stream = UnixStream::connect(socket).unwrap();
            stream.set_read_timeout(Some(Duration::from_mins(5))).unwrap();
            let mut requests = stream.try_clone().unwrap();
            let mut answers = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(move || requests.write_all(ask(client).as_bytes()).unwrap());
                stream.read_to_end(&mut answers).unwrap();
            });
            String::from_utf8_lossy(&answers).into_owned()
        };
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || answer(client))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            // SAFETY: the group that we made, whose leader has not been waited for.
            unsafe { libc::kill(-i32::try_from(self.0.id()).unwrap(), libc::SIGKILL) };
            let _ = self.0.wait();
        }
    }
}

/// 3 MB that repeat themselves a little.
const TEXT: &str = "seq 400000 | awk '{ print $1 * 7919 % 400009, $1 % 97 }' > text";

#[test]
fn sort() {
    Stock {
        needs: &[("sort", "coreutils")],
        prepare: TEXT,
        line: r#""$@" sort --parallel=4 -n text > sorted; sha256sum sorted"#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn xz() {
    Stock {
        needs: &[("xz", "xz-utils")],
        prepare: TEXT,
        line: r#""$@" xz -0 -T4 --block-size=100KiB text; sha256sum text.xz; xz -dc text.xz | sha256sum"#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn zstd() {
    Stock {
        needs: &[("zstd", "zstd")],
        prepare: TEXT,
        line: r#""$@" zstd -q -T4 -B512KiB text; sha256sum text.zst; zstd -dc text.zst | sha256sum"#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn pigz() {
    Stock {
        needs: &[("pigz", "pigz")],
        prepare: TEXT,
        line: r#""$@" pigz -n -p4 -b128 text; sha256sum text.gz; pigz -dc text.gz | sha256sum"#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn git() {
    Stock {
        needs: &[("git", "git")],
        prepare: "git init -q repository; cd repository
            for i in $(seq 300); do seq $i $((i * 3)) > f$i; done
            git add .; export GIT_AUTHOR_DATE='1 Jan 2026 00:00 +0000' GIT_COMMITTER_DATE='1 Jan 2026 00:00 +0000'
            git -c user.name=n -c user.email=e commit -q -m all",
        line: r#""$@" git -C repository -c pack.threads=4 repack -adfq
            cd repository; git fsck --full --strict; git cat-file --batch-all-objects --batch-check | sha256sum"#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn sqlite() {
    Stock {
        needs: &[("sqlite3", "sqlite3")],
        prepare: "",
        line: r#""$@" sqlite3 data "PRAGMA journal_mode = WAL; CREATE TABLE t (k PRIMARY KEY, v);
            WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n LIMIT 20000) INSERT INTO t SELECT k, k * k % 101 FROM n;
            SELECT count(*), sum(v) FROM t; PRAGMA integrity_check""#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn lmdb() {
    Stock {
        needs: &[("mdb_load", "lmdb-utils"), ("mdb_dump", "lmdb-utils")],
        prepare: r#"mkdir data; seq 20000 | awk 'BEGIN { print "VERSION=3\nformat=print\ntype=btree\nmapsize=67108864\nHEADER=END" }
            { printf " k%08d\n v%d\n", $1 * 7919 % 20000, $1 } END { print "DATA=END" }' > dump"#,
        line: r#""$@" sh -c 'for i in 1 2 3 4; do mdb_load -f dump data & all="$all $!"; done; for i in $all; do wait $i || exit; done'
            mdb_dump -p data | grep -v mapsize | sha256sum"#,
        ask: None,
    }
    .does_the_same();
}

/// On an allocator that has one arena for all threads, tries its lock before it waits for it, and is used before us.
#[test]
fn rocksdb() {
    Stock {
        needs: &[("db_bench", "rocksdb-tools"), ("libjemalloc.so.2", "libjemalloc2")],
        prepare: "",
        line: r#"export LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=narenas:1,tcache:false
            "$@" db_bench --db=data --num=5000 --threads=8 --benchmarks=fillseq,readrandom,readwhilewriting > log
            grep -c micros/op log; grep -o '(.* found)' log | tail -1"#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn python() {
    Stock {
        needs: &[("python3", "python3")],
        prepare: r"echo 'import queue, threading
work, sums = queue.Queue(8), []
def take():
    total = 0
    while (item := work.get()) is not None:
        total += item
    sums.append(total)
everybody = [threading.Thread(target=take) for _ in range(4)]
[thread.start() for thread in everybody]
[work.put(i) for i in range(5000)]
[work.put(None) for _ in everybody]
[thread.join() for thread in everybody]
print(len(sums), sum(sums))' > sums.py",
        line: r#"exec "$@" python3 sums.py"#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn java() {
    Stock {
        needs: &[("java", "default-jdk-headless"), ("javac", "default-jdk-headless")],
        prepare: r"echo 'import java.util.concurrent.*;
public class Sums {
    public static void main(String[] unused) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        BlockingQueue<Integer> hand = new ArrayBlockingQueue<>(1);
        Future<Long> sum = pool.submit(() -> { long s = 0; for (int i = 0; i < 20000; i++) s += hand.take(); return s; });
        for (int t = 0; t < 4; t++) pool.submit(() -> { for (int i = 0; i < 5000; i++) hand.put(i); return 0; });
        System.out.println(sum.get());
        pool.shutdown();
    }
}' > Sums.java; javac Sums.java",
        line: r#"exec "$@" java Sums"#,
        ask: None,
    }
    .does_the_same();
}

#[test]
fn mariadb() {
    Stock {
        needs: &[("mariadbd", "mariadb-server"), ("mariadb-install-db", "mariadb-server"), ("sysbench", "sysbench")],
        prepare: "mariadb-install-db --no-defaults $AS_ROOT --datadir=$PWD/data --auth-root-authentication-method=normal",
        line: r#""$@" mariadbd --no-defaults $AS_ROOT --datadir=$PWD/data --socket=$PWD/socket --pid-file=$PWD/pid --skip-networking \
                --innodb-buffer-pool-size=32M --innodb-log-file-size=8M --innodb-use-native-aio=0 --innodb-flush-method=fsync &
            trap "kill $!" EXIT; trap exit TERM
            until test -S socket; do kill -0 $!; sleep 0.1; done
            load="sysbench oltp_read_write --db-driver=mysql --mysql-socket=$PWD/socket --mysql-user=root --mysql-db=test"
            $load --tables=1 --table-size=1000 prepare > log
            $load --tables=1 --table-size=1000 --threads=8 --time=0 --events=200 run > log
            grep transactions: log | awk '{ print $2 }'
            mariadb -u root -S socket -N test -e 'SELECT COUNT(*) FROM sbtest1; CHECK TABLE sbtest1 EXTENDED'
            trap - EXIT; kill $!; wait $!"#,
        ask: None,
    }
    .does_the_same();
}

/// Keys of each client's own.
fn memcached_requests(client: usize) -> String {
    let one = |i: usize| {
        format!(
            "set {client}-{i} 0 0 4\r\n{:04}\r\nget {client}-{i}\r\nincr {client}-{} 5\r\n",
            i % 7,
            i.saturating_sub(3)
        )
    };
    (0..500).map(one).collect::<String>() + "quit\r\n"
}

#[test]
fn memcached() {
    Stock {
        needs: &[("memcached", "memcached")],
        prepare: "",
        line: r#"exec "$@" memcached -t 4 -s socket $AS_ROOT"#,
        ask: Some(memcached_requests),
    }
    .does_the_same();
}

fn redis_requests(client: usize) -> String {
    let one =
        |i: usize| format!("SET {client}:{i} {i}\r\nINCRBY {client}:{i} 3\r\nRPUSH {client} {i}\r\nLLEN {client}\r\n");
    (0..500).map(one).collect::<String>() + &format!("DEL {client}\r\nUNLINK {client}:1\r\nQUIT\r\n")
}

#[test]
fn redis() {
    Stock {
        needs: &[("redis-server", "redis-server")],
        prepare: "",
        line: r#"exec "$@" redis-server --port 0 --unixsocket $PWD/socket --io-threads 4 --io-threads-do-reads yes \
            --save '' --appendonly no --logfile $PWD/log"#,
        ask: Some(redis_requests),
    }
    .does_the_same();
}

/// HTTP 0.9: the body alone.
fn nginx_requests(_: usize) -> String {
    "GET /text\r\n".to_owned()
}

#[test]
fn nginx() {
    Stock {
        needs: &[("nginx", "nginx")],
        prepare: "seq 400000 > text
            echo \"daemon off; user root; pid $PWD/pid; error_log stderr; worker_processes 2; thread_pool pool threads=4;
            events {} http { access_log off; client_body_temp_path $PWD/a; proxy_temp_path $PWD/b; fastcgi_temp_path $PWD/c;
            uwsgi_temp_path $PWD/d; scgi_temp_path $PWD/e; sendfile off; aio threads=pool; output_buffers 2 32k;
            server { listen unix:$PWD/socket; root $PWD; } }\" > nginx.conf",
        line: r#"exec "$@" nginx -e stderr -c $PWD/nginx.conf"#,
        ask: Some(nginx_requests),
    }
    .does_the_same();
}
