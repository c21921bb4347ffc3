//! Requests that come before the TLS handshake is done (RFC 8470): which are carried at once, and how the others wait.
//!
//! Whoever has recorded such a request can send it again. That it is carried once is up to the session it came with, which is
//! taken out of its store by its first use; that it would do no harm twice is up to the route that allows it.

use cardea_http::{Known, Method};

use crate::{
    downstream::Downstream, exchange::Exchange, gateway::Gateway, model::Route, refusal::Reason, timer::Timer,
};

/// Whether the request may be carried before the handshake is done: the route says so, and it is safe (RFC 9110 §9.2.1).
pub(crate) fn is_allowed(route: &Route, exchange: &Exchange, client: &dyn Downstream) -> bool {
    route.early_data
        && matches!(exchange.head.method, Method::Get | Method::Head | Method::Options)
        && client.body_length().is_empty()
        && !exchange.head.fields.contains(Known::Upgrade)
}

/// Waits until the handshake is done, which RFC 8470 §3 permits in place of 425 (Too Early). Every client understands
/// that, and none has to send its request twice.
///
/// # Errors
/// [`Reason::ClientAborted`] if that doesn't come about in the time for handshakes.
pub(crate) async fn wait(
    gateway: &Gateway,
    exchange: &mut Exchange,
    client: &mut dyn Downstream,
    timer: &mut Timer,
) -> Result<(), Reason> {
    let deadline = timer.now().saturating_add(gateway.connection_timeouts().tls_handshake);
    let established = std::future::poll_fn(|cx| client.poll_established(cx));
    match timer.until(deadline, established).await {
        Ok(Ok(())) => {
            exchange.early_data = false;
            Ok(())
        }
        _ => Err(Reason::ClientAborted),
    }
}
