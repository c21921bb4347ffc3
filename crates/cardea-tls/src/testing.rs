//! What the tests of this crate share: connections in memory.

use rustls::{ConnectionCommon, Error, SideData};

/// Carries what `from` has to say to `to`: how many bytes that was, or what `to` objects to.
pub(crate) fn carry<A: SideData, B: SideData>(
    from: &mut ConnectionCommon<A>,
    to: &mut ConnectionCommon<B>,
) -> Result<usize, Error> {
    let mut wire = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut wire).unwrap();
    }
    let mut rest = wire.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(wire.len())
}
