//! Who is calling: trusted issuers, key sets, token verification, verdicts.
