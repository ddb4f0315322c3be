//! Tests over the whole repository and the real binary.

mod crash;
mod demo;
mod dependencies;
mod determinism;
mod dump;
mod export;
mod jobs;
mod kill;
mod loss;
mod mpi;
mod nccl;
mod python;
mod readme;
mod repository;
mod store;
mod torch;
mod usage;
mod values;
