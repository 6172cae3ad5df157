use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::host::Reason;

const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the Docker Engine whether it is there (`GET /_ping`).
pub(super) fn answers() -> Result<String, Reason> {
    let host = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
    let host = host.as_deref().unwrap_or(DEFAULT_HOST);
    match ping(host) {
        Ok(answer) if is_ok(&answer) => Ok(format!("Docker answers at {host}")),
        Ok(answer) => {
            let line = answer.lines().next().unwrap_or("nothing").to_owned();
            Err(reason(host, &format!("answers `{line}`"), "look at its log"))
        }
        Err(error) => Err(reason(host, &error.to_string(), advice(&error))),
    }
}

fn reason(host: &str, problem: &str, fix: &str) -> Reason {
    Reason::new(format!("no Docker Engine at {host}: {problem}"), fix)
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "use sudo, or join the group docker",
        io::ErrorKind::Unsupported => "set DOCKER_HOST to unix:///path or tcp://host:port",
        _ => "install Docker and start dockerd, or set DOCKER_HOST, or run `cargo experiments`, which brings its own",
    }
}

fn ping(host: &str) -> io::Result<String> {
    if let Some(path) = host.strip_prefix("unix://") {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        return exchange(stream);
    }
    let Some(address) = host.strip_prefix("tcp://").or_else(|| host.strip_prefix("http://")) else {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only unix:// and tcp:// can be checked",
        ));
    };
    let address = address.trim_end_matches('/').to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream)
}

fn exchange(mut stream: impl Read + Write) -> io::Result<String> {
    stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut answer = [0; 4096];
    let mut length = 0;
    while length < answer.len() && !answer[..length].contains(&b'\n') {
        match stream.read(&mut answer[length..])? {
            0 => break,
            count => length += count,
        }
    }
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

fn is_ok(answer: &str) -> bool {
    answer.starts_with("HTTP/1.") && answer.split_whitespace().nth(1) == Some("200")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::net::TcpListener;
    use std::thread;

    #[rstest]
    #[case("HTTP/1.0 200 OK\r\n", true)]
    #[case("HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\n\r\nOK", true)]
    #[case("HTTP/1.1 500 Internal Server Error\r\n", false)]
    #[case("SSH-2.0-OpenSSH\r\n", false)]
    #[case("", false)]
    fn only_a_success_counts(#[case] answer: &str, #[case] ok: bool) {
        assert_eq!(is_ok(answer), ok);
    }

    #[test]
    fn an_answer_is_read_in_pieces_and_a_connection_kept_open_does_not_block() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = format!("tcp://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 ").unwrap();
            thread::sleep(Duration::from_millis(50));
            stream.write_all(b"200 OK\r\n").unwrap();
            stream
        });
        assert!(is_ok(&ping(&host).unwrap()));
        drop(server.join());
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error() {
        assert_eq!(
            ping("unix:///no/such/docker.sock").unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(ping("ssh://host").unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
