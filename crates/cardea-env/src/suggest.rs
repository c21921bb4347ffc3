//! Suggestions for unknown names in errors.

/// Longer names are not compared: the cost is quadratic in the length, and no valid name is as long.
const LENGTH_MAX: usize = 128;

/// The candidate that is most similar to `name`, if it is similar enough: at most a third of the letters may be
/// inserted, deleted, replaced or swapped, at least one and never more than three. Case is ignored.
#[must_use]
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if name.len() > LENGTH_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let limit = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= 4 * limit)
        .map(|candidate| (strsim::osa_distance(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= limit && *distance < candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_suggested_and_the_far_is_not() {
        let candidates = ["request.path", "request.method", "source.address"];
        let cases = [
            ("request.pth", Some("request.path")),
            ("Request.Path", Some("request.path")),
            ("requset.method", Some("request.method")),
            ("source.adress", Some("source.address")),
            ("requset.path", Some("request.path")),
            ("requestpath", Some("request.path")),
            ("token.sub", None),
            ("", None),
            ("x", None),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name, candidates), expected, "{name}");
        }
    }

    #[test]
    fn an_endless_name_costs_nothing() {
        assert_eq!(nearest(&"x".repeat(1 << 20), ["x"]), None);
    }
}
