//! Services, endpoints, their health, and connection pools.
