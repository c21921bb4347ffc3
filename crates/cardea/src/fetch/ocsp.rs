//! Sends OCSP requests about our own certificates: POST over plain HTTP (RFC 6960 §A.1), because the response is
//! signed.

use std::time::Duration;

use bytes::Bytes;
use cardea_identity::FetchError;
use cardea_tls::{STAPLE_BYTES_MAX, StapleRequest};
use http::{Request, header};
use http_body_util::Full;
use url::Url;

use super::{USER_AGENT, connect_to_one, exchange, origin_form, resolve};

/// The timeout of the whole request.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The unverified response. The responder's URL is in the configured certificate, so it may be in a private network, as
/// those of company authorities are.
pub(crate) async fn ask(request: &StapleRequest) -> Result<Vec<u8>, FetchError> {
    tokio::time::timeout(TIMEOUT, post(request)).await.unwrap_or(Err(FetchError::Timeout))
}

async fn post(request: &StapleRequest) -> Result<Vec<u8>, FetchError> {
    let io = |error: &dyn std::fmt::Display| FetchError::Io(error.to_string());
    let url: Url = request.url.parse().map_err(|error| io(&error))?;
    if url.scheme() != "http" {
        return Err(FetchError::AddressRefused);
    }
    let (tcp, address) = connect_to_one(resolve(&url).await?, TIMEOUT).await?;
    tracing::debug!(%url, %address, "asking for the status of a certificate");
    let (authority, target) = origin_form(&url);
    let message = Request::post(target)
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, "application/ocsp-request")
        .header(header::ACCEPT, "application/ocsp-response")
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::copy_from_slice(&request.body)))
        .map_err(|error| io(&error))?;
    exchange(tcp, message, STAPLE_BYTES_MAX).await
}
