//! Links RocksDB and LevelDB as the system has them, or from a directory that is named.
//!
//! `ROCKSDB_LIB_DIR` and `LEVELDB_LIB_DIR` name directories that hold `librocksdb.so` and
//! `libleveldb.so`; the binary then looks there at run time too. The C interfaces used are old and
//! stable, so that a newer library needs no other header.

use std::env;

fn main() {
    for library in ["rocksdb", "leveldb"] {
        let variable = format!("{}_LIB_DIR", library.to_uppercase());
        println!("cargo:rerun-if-env-changed={variable}");
        if let Ok(directory) = env::var(&variable) {
            println!("cargo:rustc-link-search=native={directory}");
            println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
        }
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
