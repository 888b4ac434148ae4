//! Tests of the prefix cache alone.
