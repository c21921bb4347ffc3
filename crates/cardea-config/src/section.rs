//! Sections whose keys are fields of the libraries' settings.

/// Declares a section: the documentation of each key, its written form, and the field that it sets. Defaults are those
/// of the settings. A new key needs an entry here, a field with its default there, and the code that uses it.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident for $settings:ty {
            $($(#[$attribute:meta])* $key:ident: $type:ty => $($field:ident).+;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$attribute])* pub(crate) $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                let settings = <$settings>::default();
                Self { $($key: settings.$($field).+,)* }
            }
        }

        impl $name {
            /// Copies the written values into the settings.
            pub(crate) fn apply(self, settings: &mut $settings) {
                $(settings.$($field).+ = self.$key;)*
            }
        }
    };
}

/// Declares a table whose keys stand in place of those of a section, for one route, service or the like: the written form
/// of each, its limits, and the field that it sets. Omitted keys change nothing.
macro_rules! overrides {
    (
        $(#[$meta:meta])*
        $name:ident in place of $section:literal;
        for $settings:ty {
            $($key:ident: $form:ty $([$($limits:tt)*])? => $($field:ident).+;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $name {
            $(
                #[doc = concat!(" In place of `", $section, ".", stringify!($key), "`.")]
                $(#[schemars($($limits)*)])?
                pub(crate) $key: Option<Written<$form>>,
            )*
        }

        impl $name {
            /// Copies the written values into the settings.
            pub(crate) fn apply(self, settings: &mut $settings) {
                $(if let Some(value) = self.$key {
                    settings.$($field).+ = value.0.into();
                })*
            }
        }
    };
}

/// Declares a section and the table that stands in place of it for one service or the like, with the same keys: the
/// documentation of each, its form and limits, and the field that it sets. Defaults are those of the settings.
macro_rules! overridable {
    (
        $(#[$section_meta:meta])* $section:ident,
        $(#[$overrides_meta:meta])* $overrides:ident in place of $name:literal;
        for $settings:ty {
            $($(#[$doc:meta])* $key:ident: $form:ty $([$($limits:tt)*])? => $($field:ident).+;)*
        }
    ) => {
        $(#[$section_meta])*
        #[derive(Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $section {
            $($(#[$doc])* $(#[schemars($($limits)*)])? $key: Written<$form>,)*
        }

        impl Default for $section {
            fn default() -> Self {
                let settings = <$settings>::default();
                Self { $($key: Written(settings.$($field).+),)* }
            }
        }

        impl $section {
            /// Takes what is written over into the settings.
            pub(crate) fn apply(self, settings: &mut $settings) {
                $(settings.$($field).+ = self.$key.0;)*
            }
        }

        $crate::section::overrides! {
            $(#[$overrides_meta])*
            $overrides in place of $name;
            for $settings {
                $($key: $form $([$($limits)*])? => $($field).+;)*
            }
        }
    };
}

pub(crate) use {overridable, overrides, section};
