//! Listening addresses that conflict: of listeners, the admin listener and the admin socket.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use super::{
    super::{
        document::Cursor,
        model::{Admin, Listener, Located},
        source::Location,
        text::BindAddress,
    },
    Resolver,
};

/// Whether sockets on `[::]` exclude IPv4 on this machine.
const ONLY_IPV6: &str = "/proc/sys/net/ipv6/bindv6only";

/// A configured listening address.
struct Claim {
    who: String,
    address: SocketAddr,
    location: Location,
}

impl Resolver<'_> {
    /// Reports addresses that overlap, so that the second one can't be bound.
    pub(super) fn overlaps(&mut self, listeners: &[Located<Listener>], admin: &Admin, root: Cursor<'_>) {
        let mut by_port: HashMap<u16, Vec<Claim>> = HashMap::new();
        let mut paths: HashMap<PathBuf, (String, Location)> = HashMap::new();
        let written = listeners.iter().enumerate().map(|(index, listener)| {
            let location = root.key("listener").index(index).key("address").location();
            (format!("the listener {:?}", listener.name), listener.address.clone(), location)
        });
        let at = root.key("admin");
        let side_doors = [
            admin.address.map(|address| {
                ("the admin listener".to_owned(), BindAddress::Tcp(address), at.key("address").location())
            }),
            admin.socket.clone().map(|path| {
                ("the admin socket".to_owned(), BindAddress::Unix(path), at.key("socket").location())
            }),
        ];
        for (who, address, location) in written.chain(side_doors.into_iter().flatten()) {
            match address {
                BindAddress::Tcp(address) if address.port() == 0 => {}
                BindAddress::Tcp(address) => {
                    by_port.entry(address.port()).or_default().push(Claim { who, address, location });
                }
                // Path components ignore redundant parts: `//` and `/./`.
                BindAddress::Unix(path) => match paths.entry(path.components().collect()) {
                    Entry::Vacant(vacant) => {
                        vacant.insert((who, location));
                    }
                    Entry::Occupied(first) => {
                        let (first, first_location) = first.get();
                        let other = self.named(first, *first_location);
                        self.problems.add(
                            location,
                            format!("unix:{} is taken by {other}", path.display()),
                            "give each its own path",
                        );
                    }
                },
            }
        }
        let dual_stack = fs::read_to_string(ONLY_IPV6).map_or(true, |text| text.trim() != "1");
        for claims in by_port.values() {
            for (index, claim) in claims.iter().enumerate() {
                let earlier = claims.iter().take(index);
                let Some(first) =
                    earlier.clone().find(|other| overlap(other.address, claim.address, dual_stack))
                else {
                    continue;
                };
                let other = self.named(&first.who, first.location);
                if first.address == claim.address {
                    self.problems.add(
                        claim.location,
                        format!("{} is taken by {other}", claim.address),
                        "give each its own address or port",
                    );
                } else {
                    let all = if first.address.ip().is_unspecified() { first.address } else { claim.address };
                    self.problems.add(
                        claim.location,
                        format!("{} overlaps with {} of {other}", claim.address, first.address),
                        format!("{all} takes every address of its port: keep it alone, or give each its own address or port"),
                    );
                }
            }
        }
    }

    fn named(&self, who: &str, location: Location) -> String {
        // The admin listener and its socket exist by default.
        let position = self.sources.position(location);
        if location == Location::default() { who.to_owned() } else { format!("{who} at {position}") }
    }
}

/// Whether a connection could reach both, so that the system refuses the second one.
fn overlap(one: SocketAddr, other: SocketAddr, dual_stack: bool) -> bool {
    let (first, second) = (one.ip().to_canonical(), other.ip().to_canonical());
    if first == second {
        // Addresses of two links may be equal.
        return match (one, other) {
            (SocketAddr::V6(one), SocketAddr::V6(other)) => one.scope_id() == other.scope_id(),
            _ => true,
        };
    }
    let takes = |all: IpAddr, one: IpAddr| {
        all.is_unspecified() && (all.is_ipv4() == one.is_ipv4() || (all.is_ipv6() && dual_stack))
    };
    takes(first, second) || takes(second, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_overlap_with_what_they_take() {
        for (one, other, both, v6_alone) in [
            ("10.0.0.1:80", "10.0.0.1:80", true, true),
            ("10.0.0.1:80", "10.0.0.2:80", false, false),
            ("0.0.0.0:80", "10.0.0.1:80", true, true),
            ("[::]:80", "[fd00::1]:80", true, true),
            ("[::]:80", "0.0.0.0:80", true, false),
            ("[::]:80", "10.0.0.1:80", true, false),
            ("0.0.0.0:80", "[fd00::1]:80", false, false),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80", true, true),
            ("[fe80::1%1]:80", "[fe80::1%2]:80", false, false),
        ] {
            let parsed = |text: &str| text.parse::<SocketAddr>().unwrap();
            for (one, other) in [(parsed(one), parsed(other)), (parsed(other), parsed(one))] {
                assert_eq!(overlap(one, other, true), both, "{one} {other}");
                assert_eq!(overlap(one, other, false), v6_alone, "{one} {other}");
            }
        }
    }
}
