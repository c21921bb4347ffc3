//! Name lookup when the configuration is loaded: in the static table, and among custom attributes.

use std::sync::Arc;

use crate::custom::Custom;
use crate::redaction::{Hide, Redaction};
use crate::reference::{Base, Reference};
use crate::suggest::nearest;
use crate::table::{Attribute, Family, ResolveError, Table};
use crate::value::Kind;

/// The scope of names: a [`Table`], or the [`Names`](crate::Names) of a configuration.
pub trait Lookup<R: 'static>: sealed::Sealed {
    /// All names.
    #[doc(hidden)]
    fn view(&self) -> View<'_, R>;

    /// Looks a name up: an attribute of exactly this name; else a family as a whole; else the member of the
    /// family with the longest prefix; else what lies in an attribute that is a map.
    ///
    /// In a value that may be a map the rest of the name leads on: `token.claims.realm_access.roles` is the
    /// entry `roles` of the claim `realm_access`. A rest that is not made of words between dots is one key, so
    /// that `token.claims.https://example.com/role` is a claim as well.
    ///
    /// For when the configuration is loaded: it compares all names, and an error seeks a near miss.
    ///
    /// # Errors
    ///
    /// [`ResolveError`], if there is no such attribute, or no such member of the family.
    fn resolve(&self, name: &str) -> Result<Reference<R>, ResolveError> {
        self.view().resolve(name)
    }
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

impl<R> sealed::Sealed for Table<R> {}

impl<R> Lookup<R> for Table<R> {
    fn view(&self) -> View<'_, R> {
        View { attributes: self.attributes, families: self.families, custom: &[], redaction: None }
    }
}

/// All names.
#[doc(hidden)]
pub struct View<'n, R: 'static> {
    pub(crate) attributes: &'static [Attribute<R>],
    pub(crate) families: &'static [Family<R>],
    pub(crate) custom: &'n [Arc<Custom<R>>],
    pub(crate) redaction: Option<&'n Redaction>,
}

impl<R> View<'_, R> {
    pub(crate) fn resolve(&self, name: &str) -> Result<Reference<R>, ResolveError> {
        if let Some(whole) = self.attribute(name).or_else(|| self.family(name)) {
            return Ok(whole);
        }
        let family = self
            .families
            .iter()
            .enumerate()
            .filter(|(_, family)| name.len() > family.prefix.len() && name.starts_with(family.prefix))
            .max_by_key(|(_, family)| family.prefix.len());
        if let Some((id, family)) = family {
            let rest = &name[family.prefix.len()..];
            let (key, path) = split(rest, family.kind);
            let member = self
                .member(id, key)
                .map_err(|reason| ResolveError::Argument { name: name.to_owned(), reason });
            return member.map(|member| Reference { path: path.map(Box::from).collect(), ..member });
        }
        let inner = name.match_indices('.').rev().find_map(|(dot, _)| {
            let outer = self.attribute(&name[..dot])?;
            matches!(outer.kind, Kind::Map | Kind::Any).then_some((outer, &name[dot + 1..]))
        });
        if let Some((outer, rest)) = inner
            && !rest.is_empty()
        {
            let (key, path) = split(rest, Kind::Any);
            let path = std::iter::once(key).chain(path).map(Box::from).collect();
            return Ok(Reference { kind: Kind::Any, path, ..outer });
        }
        Err(ResolveError::Unknown { name: name.to_owned(), suggestion: self.suggest(name) })
    }

    /// An attribute of the table, or a custom one.
    pub(crate) fn attribute(&self, name: &str) -> Option<Reference<R>> {
        let known = self.attributes.iter().enumerate().find(|(_, attribute)| attribute.name == name);
        if let Some((slot, attribute)) = known {
            return Some(Reference {
                kind: attribute.kind,
                // A table has fewer than 65,536.
                base: Base::Attribute { slot: slot as u16, read: attribute.read },
                path: Box::default(),
                hide: self.redaction.and_then(|redaction| redaction.of_attribute(name)),
            });
        }
        let custom = self.custom.iter().find(|custom| custom.name() == name)?;
        Some(Reference {
            kind: custom.kind(),
            base: Base::Custom(Arc::clone(custom)),
            path: Box::default(),
            hide: custom.hide(),
        })
    }

    /// A whole family.
    pub(crate) fn family(&self, name: &str) -> Option<Reference<R>> {
        let (id, family) = self.families.iter().enumerate().find(|(_, family)| family.name() == name)?;
        Some(Reference {
            kind: Kind::Map,
            base: Base::Family { family: id as u16, read: family.map?, fold: family.folds_case() },
            path: Box::default(),
            hide: self.redaction.and_then(|redaction| redaction.of_family(family.prefix)),
        })
    }

    /// The index of the family with exactly this name, even if it can't be read as a whole.
    pub(crate) fn family_id(&self, name: &str) -> Option<usize> {
        self.families.iter().position(|family| family.name() == name)
    }

    /// A member of a family.
    pub(crate) fn member(&self, id: usize, key: &str) -> Result<Reference<R>, &'static str> {
        let family = &self.families[id];
        if key.is_empty() {
            return Err("no name of a member");
        }
        let key = (family.prepare)(key)?;
        let hide: Option<Hide> =
            self.redaction.and_then(|redaction| redaction.of_member(family.prefix, &key.text));
        Ok(Reference {
            kind: family.kind,
            base: Base::Member { family: id as u16, key, read: family.read },
            path: Box::default(),
            hide,
        })
    }

    pub(crate) fn unknown(&self, name: &str) -> ResolveError {
        ResolveError::Unknown { name: name.to_owned(), suggestion: self.suggest(name) }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let table = self.attributes.iter().map(|attribute| attribute.name);
        table.chain(self.custom.iter().map(|custom| custom.name()))
    }

    /// A suggestion: a similar name, a family with a similar prefix, or a name that lacks its first part (`path`).
    fn suggest(&self, name: &str) -> Option<String> {
        if let Some(near) = nearest(name, self.names()) {
            return Some(near.to_owned());
        }
        for family in self.families {
            let dots = family.prefix.matches('.').count();
            let Some((end, _)) = name.match_indices('.').nth(dots - dots.min(1)) else { continue };
            if name.len() > end + 1 && nearest(&name[..=end], [family.prefix]).is_some() {
                return Some(format!("{}{}", family.prefix, &name[end + 1..]));
            }
        }
        let last =
            |known: &&str| known.rsplit_once('.').is_some_and(|(_, last)| last.eq_ignore_ascii_case(name));
        let mut found = self.names().filter(last);
        match (found.next(), found.next()) {
            (Some(only), None) => Some(only.to_owned()),
            _ => None,
        }
    }
}

/// The first key of the rest of a name, and the path into a value of any kind.
pub(crate) fn split(rest: &str, kind: Kind) -> (&str, impl Iterator<Item = &str>) {
    let word = |word: &str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let path = kind == Kind::Any && rest.split('.').all(word);
    let (key, path) = if path { rest.split_once('.').unwrap_or((rest, "")) } else { (rest, "") };
    (key, path.split('.').filter(|word| !word.is_empty()))
}
