//! The server as its clients see it: bytes on a socket, over a real store in a directory of its own.

mod faults;
mod harness;

mod batch;
mod drain;
mod http_table;
mod item;
mod openapi;
mod overload;
mod pipelining;
mod scan;
mod start;
mod timeouts;
