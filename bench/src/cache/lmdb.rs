//! LMDB: a transaction for each access, as processes that share a file have to.

use super::gate::Load;
use super::stores::{Store, look};
use heed::types::{Bytes, Str};
use heed::{Database, Env, EnvFlags, EnvOpenOptions};
use miette::{IntoDiagnostic, Report};
use std::sync::OnceLock;

pub struct Lmdb {
    directory: tempfile::TempDir,
    map_size: usize,
    /// Of this process, opened by the first session that needs it.
    open: OnceLock<(Env, Database<Str, Bytes>)>,
}

impl Lmdb {
    pub fn new(names: &[String], bytes: usize) -> Result<Self, Report> {
        let directory = tempfile::tempdir_in("/dev/shm").into_diagnostic()?;
        let map_size = (names.len() * (bytes + 400) * 3).next_multiple_of(1 << 20).max(1 << 26);
        let lmdb = Self { directory, map_size, open: OnceLock::new() };
        let env = lmdb.env()?;
        let mut txn = env.write_txn().into_diagnostic()?;
        let database = env.create_database::<Str, Bytes>(&mut txn, None).into_diagnostic()?;
        for name in names {
            database.put(&mut txn, name, &vec![1; bytes]).into_diagnostic()?;
        }
        txn.commit().into_diagnostic()?;
        // A child of fork may not use what its parent has open.
        env.prepare_for_closing().wait();
        Ok(lmdb)
    }

    fn env(&self) -> Result<Env, Report> {
        let mut options = EnvOpenOptions::new();
        options.map_size(self.map_size);
        // SAFETY: nothing is synchronised to a disk, and there is none below; a file of this benchmark alone.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
        // SAFETY: as above.
        unsafe { options.open(self.directory.path()) }.into_diagnostic()
    }

    fn opened(&self) -> (Env, Database<Str, Bytes>) {
        let env = self.env().expect("an environment");
        let txn = env.read_txn().expect("a transaction");
        let database = env.open_database(&txn, None).expect("a database").expect("filled");
        txn.commit().expect("the database's number is kept");
        (env, database)
    }
}

impl Store for Lmdb {
    fn work(&self, load: &Load<'_>) {
        let (env, database) = self.open.get_or_init(|| self.opened());
        let get = |name: &str| {
            let txn = env.read_txn().expect("a transaction");
            database.get(&txn, name).expect("a get").inspect(|value| look(value)).is_some()
        };
        let put = |name: &str, with| {
            let mut txn = env.write_txn().expect("a transaction");
            database.put(&mut txn, name, &vec![with; load.bytes]).expect("a put");
            txn.commit().expect("committed");
        };
        load.warm(get);
        load.run(get, put);
    }
}
