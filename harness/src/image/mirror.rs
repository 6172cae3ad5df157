//! The Debian mirror that the host's apt is configured with.

use snaptax::command::Command;

/// The mirror of the host's own Debian sources. `None` on a host that has none (Ubuntu, say): mmdebstrap then
/// uses its own default.
pub(crate) fn of_this_host() -> Option<String> {
    let targets = |extra: &[&str]| {
        Command::new("apt-get")
            .args([
                "indextargets",
                "--format",
                "$(LABEL)|$(COMPONENT)|$(REPO_URI)|$(RELEASE)",
            ])
            .args(extra)
            .run()
            .map(|output| output.stdout)
            .unwrap_or_default()
    };
    // Labels are known of sources whose index was downloaded; without any, only addresses are.
    labelled(&targets(&[])).or_else(|| unlabelled(&targets(&["--no-release-info"])))
}

fn labelled(targets: &str) -> Option<String> {
    fields(targets)
        .find(|[label, component, ..]| *label == "Debian" && *component == "main")
        .map(|[_, _, uri, _]| uri.to_owned())
}

fn unlabelled(targets: &str) -> Option<String> {
    fields(targets)
        .find(|[_, component, uri, release]| {
            *component == "main" && uri.trim_end_matches('/').ends_with("/debian") && !release.contains("security")
        })
        .map(|[_, _, uri, _]| uri.to_owned())
}

fn fields(targets: &str) -> impl Iterator<Item = [&str; 4]> {
    targets.lines().filter_map(|line| {
        let fields: Vec<_> = line.split('|').collect();
        <[&str; 4]>::try_from(fields).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_archive_is_chosen_among_labelled_sources() {
        let targets = "Debian-Security|main|http://mirror.example/debian-security/|oldstable-security\n\
                       node|main|https://node.example/|nodistro\n\
                       Debian|contrib|http://else.example/debian/|trixie\n\
                       Debian|main|http://mirror.example/debian/|trixie\n";
        assert_eq!(labelled(targets).as_deref(), Some("http://mirror.example/debian/"));
    }

    #[test]
    fn without_downloaded_indexes_the_address_tells() {
        let targets = "$(LABEL)|main|http://mirror.example/debian-security/|trixie-security\n\
                       $(LABEL)|main|http://mirror.example/debian/|trixie\n";
        assert_eq!(labelled(targets), None);
        assert_eq!(unlabelled(targets).as_deref(), Some("http://mirror.example/debian/"));
    }

    #[test]
    fn a_host_of_another_distribution_has_none() {
        let targets = "Ubuntu|main|http://mirror.example/ubuntu/|noble\n";
        assert_eq!(labelled(targets).or_else(|| unlabelled(targets)), None);
    }
}
