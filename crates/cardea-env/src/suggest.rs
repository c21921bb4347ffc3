//! The name that was probably meant: what an error about an unknown name ends in.

/// Longer names are not compared: the cost grows with the square of the length, and no name is as long.
const LENGTH_MAX: usize = 128;

/// The candidate that is nearest to `name`, if one is near enough to be worth naming: at most a third of
/// the name's letters have to be changed, and never more than three. Case does not count.
#[must_use]
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if name.len() > LENGTH_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let limit = (name.chars().count() / 3).min(3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= 4 * limit)
        .map(|candidate| (distance(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits that turn one name into the other: insert, delete, replace, swap two neighbours.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before_last: Vec<usize> = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    let mut previous = None;
    for (row, letter) in from.chars().enumerate() {
        let mut current = Vec::with_capacity(to.len() + 1);
        current.push(row + 1);
        for (column, other) in to.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != *other);
            let mut least = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            if column > 0 && previous == Some(*other) && to[column - 1] == letter {
                least = least.min(before_last[column - 1] + 1);
            }
            current.push(least);
        }
        previous = Some(letter);
        before_last = std::mem::replace(&mut last, current);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let cases = [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("", "abc", 3),
            ("abc", "abd", 1),
            ("abc", "acb", 1),
            ("abcd", "badc", 2),
            ("kitten", "sitting", 3),
            ("é", "e", 1),
        ];
        for (from, to, expected) in cases {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn the_nearest_is_suggested_and_the_far_is_not() {
        let candidates = ["request.path", "request.method", "source.address"];
        let cases = [
            ("request.pth", Some("request.path")),
            ("Request.Path", Some("request.path")),
            ("requset.method", Some("request.method")),
            ("source.adress", Some("source.address")),
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
