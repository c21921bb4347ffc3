//! The output of commands. A closed pipe (`cardea schema | head`) is no error.

use std::io::{self, Write};

use serde::Serialize;

/// Standard output and standard error, or buffers in tests.
pub(crate) struct Output {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    /// The reader of standard output is gone.
    is_closed: bool,
}

impl Output {
    /// Those of the process.
    pub(crate) fn standard() -> Self {
        Self::new(Box::new(io::stdout()), Box::new(io::stderr()))
    }

    pub(crate) fn new(out: Box<dyn Write>, err: Box<dyn Write>) -> Self {
        Self { out, err, is_closed: false }
    }

    /// Writes text to standard output.
    ///
    /// # Errors
    /// If the write fails, except for a closed pipe.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            result => result,
        }
    }

    /// Writes a line to standard output.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.text(&format!("{line}\n"))
    }

    /// Writes a value as indented JSON to standard output.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
        self.line(&text)
    }

    /// Writes a value as JSON on one line to standard output.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub(crate) fn json_line<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let text = serde_json::to_string(value).map_err(io::Error::other)?;
        self.line(&text)
    }

    /// Writes a line to standard error. A failure is ignored.
    pub(crate) fn error(&mut self, line: &str) {
        let _ = writeln!(self.err, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_failure_but_a_full_disk_is() {
        let mut output = Output::new(Box::new(Failing(io::ErrorKind::BrokenPipe)), Box::new(io::sink()));
        assert!(output.line("a").is_ok());
        assert!(output.line("b").is_ok());
        let mut output = Output::new(Box::new(Failing(io::ErrorKind::StorageFull)), Box::new(io::sink()));
        assert!(output.line("a").is_err());
    }
}
