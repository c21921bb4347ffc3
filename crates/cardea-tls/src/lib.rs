//! Certificates, server and client configurations of TLS, trust domains.
