//! Whatever happens to the files of a trace, what is read of them is true: for every prefix, flipped bit, overwritten
//! byte, lost, repeated or moved block, each segment gives a prefix of its calls, the segments behind it are read on,
//! what is missing is named, and nothing takes more memory than the whole trace did.
//!
//! `truth` writes streams and knows what is in them; `memory` counts what is allocated; the rest does the damage.

#[path = "../common/expected.rs"]
mod expected;
#[path = "../common/sample.rs"]
mod sample;

mod blocks;
mod memory;
mod prefixes;
mod random;
mod tails;
mod truth;
