//! The statuses of gRPC calls.

macro_rules! statuses {
    ($($variant:ident = $code:literal $doc:literal,)+) => {
        /// The status of a gRPC call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum GrpcStatus {
            $(#[doc = $doc] $variant = $code,)+
        }

        impl GrpcStatus {
            /// All of them, in the order of their codes.
            pub const ALL: [Self; 17] = [$(Self::$variant),+];

            /// The code, as `grpc-status` carries it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($code)),+ }
            }
        }
    };
}

statuses! {
    Ok = 0 "The call succeeded.",
    Cancelled = 1 "The caller cancelled it.",
    Unknown = 2 "The error has no other status.",
    InvalidArgument = 3 "An argument is invalid.",
    DeadlineExceeded = 4 "The caller's deadline passed.",
    NotFound = 5 "What was asked for does not exist.",
    AlreadyExists = 6 "What was to be created exists.",
    PermissionDenied = 7 "The caller is known, and is not allowed.",
    ResourceExhausted = 8 "A quota or a limit is used up.",
    FailedPrecondition = 9 "The system is not in the required state.",
    Aborted = 10 "The call was aborted, typically by a conflict.",
    OutOfRange = 11 "The call reaches past a valid range.",
    Unimplemented = 12 "The method does not exist.",
    Internal = 13 "A part of the protocol was violated.",
    Unavailable = 14 "The service is not available; the call may be retried.",
    DataLoss = 15 "Data was lost.",
    Unauthenticated = 16 "The caller is not known.",
}

impl GrpcStatus {
    /// The number of the status.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The status with this code, in decimal digits without leading zeros.
    #[must_use]
    pub fn parse(code: &[u8]) -> Option<Self> {
        let number = match code {
            [digit @ b'0'..=b'9'] => digit - b'0',
            [b'1', digit @ b'0'..=b'9'] => 10 + digit - b'0',
            _ => return None,
        };
        Self::ALL.get(usize::from(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_and_read_alike() {
        for (number, status) in (0..).zip(GrpcStatus::ALL) {
            assert_eq!(status.code(), number);
            assert_eq!(status.as_str(), number.to_string());
            assert_eq!(GrpcStatus::parse(status.as_str().as_bytes()), Some(status));
        }
    }
}
