//! The pthread interposer of retrial.
