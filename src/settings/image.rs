/// What Docker takes, and a file's name can hold.
const LONGEST: usize = 200;

/// Checks that an image's name is one that Docker takes (the grammar of distribution/reference):
/// `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.
pub(super) fn check(image: &str) -> Result<(), String> {
    if is_reference(image) {
        return Ok(());
    }
    Err("not an image's name; use one such as mysql:8.4 or host:5000/db/mysql:8.4, in lower case".into())
}

fn is_reference(image: &str) -> bool {
    if image.len() > LONGEST {
        return false;
    }
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (name, tag) = match name.rsplit_once(':') {
        // A colon before a slash is a host's port.
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => path,
        _ => name,
    };
    path.split('/').all(is_component) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

/// Docker takes the first part for a host if it has a dot or a port, or is `localhost`.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let named = host == "localhost" || host.contains('.') || port.is_some();
    let written = host
        .split('.')
        .all(|label| is_framed(label, |c| c.is_ascii_alphanumeric(), "-"));
    let numbered = |port: &str| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit());
    named && written && port.is_none_or(numbered)
}

fn is_component(text: &str) -> bool {
    is_framed(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "._-")
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128 && text.starts_with(is_word) && text.chars().all(|c| is_word(c) || ".-".contains(c))
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else {
        return false;
    };
    let is_hex = hex.len() >= 32 && hex.bytes().all(|c| c.is_ascii_hexdigit());
    is_framed(algorithm, |c| c.is_ascii_alphanumeric(), "+._-") && is_hex
}

/// Whether a text consists of such letters, with separators between them at most.
fn is_framed(text: &str, is_letter: impl Fn(char) -> bool, separators: &str) -> bool {
    text.starts_with(&is_letter)
        && text.ends_with(&is_letter)
        && text.chars().all(|c| is_letter(c) || separators.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::bare("mysql")]
    #[case::tagged("mysql:8.4")]
    #[case::from_packages("snaptax/mysql:debian")]
    #[case::from_a_host("host.example/db/my_sql:9.0-debian")]
    #[case::from_a_port("localhost:5000/mysql")]
    #[case::by_digest("mysql:8.4@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")]
    fn what_docker_takes_passes(#[case] image: &str) {
        assert_eq!(check(image), Ok(()));
    }

    #[rstest]
    #[case::an_option("-rm")]
    #[case::without_a_tag("mysql:")]
    #[case::without_a_name(":8.4")]
    #[case::capitals("MySQL:8.4")]
    #[case::a_path("../mysql")]
    #[case::blanks("my sql")]
    #[case::two_tags("mysql:8:4")]
    #[case::without_a_digest("mysql@sha256")]
    #[case::half_a_digest("mysql@sha256:0123")]
    #[case::for_a_shell("mysql;reboot")]
    #[case::a_tag_like_an_option("mysql:-x")]
    #[case::ending_in_a_slash("mysql/")]
    fn what_docker_refuses_is_refused_with_what_it_would_take(#[case] image: &str) {
        assert!(check(image).unwrap_err().contains("mysql:8.4"));
    }
}
