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

/// Declares a section whose keys override more general settings. Omitted keys change nothing.
macro_rules! overrides {
    (
        $(#[$meta:meta])*
        $name:ident of $settings:ty {
            $($(#[$attribute:meta])* $key:ident: $type:ty => $($field:ident).+;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$attribute])* pub(crate) $key: Option<$type>,)*
        }

        impl $name {
            /// Copies the written values into the settings.
            pub(crate) fn apply(&self, settings: &mut $settings) {
                $(if let Some(value) = self.$key {
                    settings.$($field).+ = value.into();
                })*
            }
        }
    };
}

pub(crate) use {overrides, section};
