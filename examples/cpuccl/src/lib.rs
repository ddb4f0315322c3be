//! A small collective library with NCCL's C API over host memory.
//!
//! It exists so that jobs whose ranks make NCCL calls run on a machine without a GPU, and so that broken jobs break the way they break on
//! NCCL: the ranks never compare what they were asked to do. A rank that makes another call leaves the others waiting for data that does not
//! come; a rank that uses another reduction, or another type of the same size, spoils the result and the job ends with exit 0.
//!
//! How it works: a communicator is one shared mapping ([`shm`]) that holds a ring of bounded channels for collectives and one channel per
//! ordered pair of ranks for sends and receives. A call is checked locally, turned into a program of steps ([`protocol`]) and queued on the
//! communicator's worker thread ([`comm`]); it returns at once. A stream ([`stream`]) orders work across communicators. Calls between
//! `ncclGroupStart` and `ncclGroupEnd` are queued together ([`group`]), and their sends and receives progress side by side.

pub mod api;
pub mod calls;
pub mod comm;
pub mod group;
pub mod protocol;
pub mod reduce;
pub mod shm;
pub mod stream;
pub mod types;
