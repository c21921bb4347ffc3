//! The origin behind all subjects: an nginx with fixed answers, which counts what reaches it.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use nix::unistd::geteuid;

use super::server::{Server, free_address, request};
use super::subject::{fill, nginx};
use super::tools::Tools;

/// The origin while it runs.
#[derive(Debug)]
pub(super) struct Origin {
    server: Server,
    status: SocketAddr,
}

impl Origin {
    pub(super) fn start(tools: &Tools, processors: &[usize]) -> Result<Self> {
        let folder = tools.folder("origin")?;
        let content = folder.join("content");
        fs::create_dir(&content)?;
        fs::write(content.join("16k"), vec![b'x'; 16 * 1024])?;
        fs::write(content.join("1m"), vec![b'x'; 1024 * 1024])?;
        // That it is there leads nginx past 404 to 405, which the configuration turns into the answer.
        fs::write(content.join("post"), "")?;
        let (address, status) = (free_address()?, free_address()?);
        let values = [
            ("LISTEN", address.to_string()),
            ("STATUS", status.to_string()),
            ("WORKERS", processors.len().to_string()),
            ("DIRECTORY", folder.to_string_lossy().into_owned()),
            // As someone else, the workers of root could not read the content below a folder of root.
            ("USER", if geteuid().is_root() { "user root;" } else { "" }.to_owned()),
        ];
        let file = fill(tools, &folder, "origin", &values)?.join("origin.conf");
        let mut command = nginx(processors, &folder, &file);
        let server = Server::start(&mut command, address, &folder.join("output.log"))
            .context("starting the origin")?;
        Ok(Self { server, status })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// How many requests it has begun to answer since its start, those of this very question included.
    pub(super) fn requests(&self) -> Result<u64> {
        count(&request(self.status, "/status")?).context("the origin's count")
    }
}

/// From the third number below `server accepts handled requests`.
fn count(response: &str) -> Option<u64> {
    let line = response.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1)?;
    line.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_third_number() {
        let response = "HTTP/1.1 200 OK\r\n\r\nActive connections: 1 \nserver accepts handled requests\n 3 4 57 \n\
                        Reading: 0 Writing: 1 Waiting: 0 \n";
        assert_eq!(count(response), Some(57));
        assert_eq!(count("HTTP/1.1 502 Bad Gateway\r\n\r\n"), None);
    }
}
