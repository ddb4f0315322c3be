//! Tests over the whole repository and the real binary.

mod dependencies;
mod repository;
