//! Tests over the whole repository and the real binary.

mod crash;
mod demo;
mod dependencies;
mod export;
mod jobs;
mod kill;
mod loss;
mod mpi;
mod nccl;
mod readme;
mod repository;
mod store;
mod torch;
mod usage;
mod values;
