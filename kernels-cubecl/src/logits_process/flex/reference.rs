//! Processing by its definition.
