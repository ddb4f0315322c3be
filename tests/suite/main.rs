//! Tests over the whole repository and the real binary.

mod crash;
mod demo;
mod dependencies;
mod jobs;
mod loss;
mod mpi;
mod nccl;
mod readme;
mod repository;
mod usage;
mod values;
