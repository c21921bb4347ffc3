//! Wall and monotonic time, the coarse clock, a manual clock for tests.
