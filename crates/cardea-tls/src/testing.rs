//! Helpers of this crate's tests: connections in memory.

use rustls::{ConnectionCommon, Error, SideData};

/// Passes the pending bytes of `from` to `to`: their number, or the error of `to`.
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
