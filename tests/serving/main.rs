//! Many requests through one engine and a real model: whatever shares the batch, the cache or the
//! device, each request gives what it gives alone.

mod asynchronous;
mod beams;
mod models;
mod run;
mod samples;
mod scripted;
mod speculation;
mod speculation_real;
mod together;
mod workload;
