//! The demo: three origins in two regions, a gateway, and an authorization server with a database in memory, all in
//! this process and reachable only from this machine.

mod client;
mod origins;
mod setting;
mod trip;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use cardea_gateway::{
    listener::ListenSocket,
    workers::{self, Workers, control_runtime},
};
use cardea_issuer::{Created, NewClient};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    admin,
    cli::{DemoArgs, Exit, Output},
    config,
    server::{Inherited, Server, bind, tcp},
};
use client::HttpClient;
use origins::Origins;
use setting::Setting;

/// The data of a running demo, for scripts.
#[derive(Debug, Serialize)]
struct Description<'a> {
    issuer: &'a str,
    ca_file: &'a str,
    client_id: &'a str,
    client_secret: &'a str,
    scope: &'a str,
    resource: &'a str,
    api_url: String,
    echo_url: String,
    admin_url: String,
    admin_socket: String,
    config_file: String,
}

/// Runs the demo.
pub(crate) fn run(arguments: &DemoArgs, output: &mut Output) -> Exit {
    let started =
        Workers::start(workers::default_count()).and_then(|workers| Ok((workers, control_runtime()?)));
    let (workers, runtime) = match started {
        Ok(started) => started,
        Err(error) => {
            output.error(&format!("the runtime can't be started: {error}"));
            return Exit::Failure;
        }
    };
    let done = runtime.block_on(demo(arguments, &workers, output));
    workers.stop();
    runtime.shutdown_timeout(Duration::from_secs(1));
    match done {
        Ok(true) => Exit::Success,
        Ok(false) => Exit::Refused,
        Err(error) => {
            output.error(&format!("{error:#}"));
            Exit::Failure
        }
    }
}

/// The running parts.
struct Demo {
    server: Arc<Server>,
    setting: Setting,
    origins: Origins,
    created: Created,
    http: HttpClient,
    /// The admin socket, served while the demo runs.
    _control: Option<admin::Running>,
}

async fn demo(arguments: &DemoArgs, workers: &Arc<Workers>, output: &mut Output) -> Result<bool> {
    let demo = Demo::start(arguments, Arc::clone(workers)).await?;
    let held = if arguments.check {
        trip::check(&demo, arguments.json, output).await
    } else {
        demo.show(arguments.json, output).await.map(|()| true)
    };
    // No connection of the demo is worth waiting for.
    demo.server.drain(false).await;
    held
}

impl Demo {
    async fn start(arguments: &DemoArgs, workers: Arc<Workers>) -> Result<Self> {
        let gateway = listen(arguments.port, "--port")?;
        let admin_listener = listen(arguments.admin_port, "--admin-port")?;
        let address = gateway.local_addr()?;
        let origins = Origins::start().await?;
        let setting = Setting::write(address, admin_listener.local_addr()?, &origins)?;
        let config = config::load(&setting.config_file(), &|name| std::env::var(name).ok())
            .map_err(|problems| anyhow!("the demo's configuration is invalid:\n{problems}"))?;
        crate::logging::start(&config.log);
        let mut inherited = Inherited::of(vec![ListenSocket::Tcp(gateway)]);
        let sockets = bind(&config, &mut inherited, workers.count())?;
        let control = admin::bind_socket(config.admin.socket.as_deref())?;
        let server =
            Server::start(config, setting.config_file(), sockets, Some(admin_listener), workers).await?;
        let control = control.map(|socket| admin::serve_socket(socket, &server));
        let created = create_client(&server).await?;
        let http = HttpClient::new(address, &setting.ca_pem()?)?;
        Ok(Self { server, setting, origins, created, http, _control: control })
    }

    fn description(&self) -> Description<'_> {
        let base = self.setting.base();
        Description {
            issuer: base,
            ca_file: self.setting.ca_file(),
            client_id: &self.created.client.client_id,
            client_secret: self.created.secret.expose(),
            scope: setting::SCOPE,
            resource: setting::RESOURCE,
            api_url: format!("{base}/api"),
            echo_url: format!("{base}/echo"),
            admin_url: self
                .server
                .admin_address
                .map(|address| format!("http://{address}"))
                .unwrap_or_default(),
            admin_socket: self.setting.admin_socket().display().to_string(),
            config_file: self.setting.config_file().display().to_string(),
        }
    }

    /// Prints commands to try with their real responses, and waits to be stopped.
    async fn show(&self, json: bool, output: &mut Output) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        if json {
            output.json_line(&self.description())?;
        } else {
            self.tell(output).await?;
        }
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    }

    async fn tell(&self, output: &mut Output) -> Result<()> {
        let (base, ca) = (self.setting.base(), self.setting.ca_file());
        let (id, secret) = (&self.created.client.client_id, self.created.secret.expose());
        output.line(&format!("Cardea's demo serves {base} until Ctrl-C. Its pages: {base}/"))?;
        output.line(&format!("Metrics and readiness (read only): {}", self.description().admin_url))?;
        output.line(&format!("Configuration: {}", self.setting.config_file().display()))?;
        output.line("")?;

        output.line("1. A token, from the authorization server:")?;
        output.line(&format!(
            "   TOKEN=$(curl -s --cacert {ca} -u {id}:{secret} -d grant_type=client_credentials \\"
        ))?;
        output.line(&format!(
            "     {base}/oauth2/token | sed 's/.*\"access_token\":\"\\([^\"]*\\)\".*/\\1/')"
        ))?;
        let answer = self.token(None).await?;
        output.line(&format!("   -> {}", answer.summary()))?;
        let token = answer.member("access_token").context("the response contains no token")?;
        output.line("")?;

        output.line(
            "2. A call with the token is forwarded to an origin, with headers that identify the caller:",
        )?;
        output.line(&format!("   curl --cacert {ca} -H \"Authorization: Bearer $TOKEN\" {base}/api"))?;
        let answer = self.http.get("/api", Some(&token)).await?;
        output.line(&format!("   -> {}", answer.summary()))?;
        output.line("")?;

        output.line("3. A call without a token is refused:")?;
        output.line(&format!("   curl -i --cacert {ca} {base}/api"))?;
        let answer = self.http.get("/api", None).await?;
        output.line(&format!("   -> {}", answer.summary()))?;
        output.line("")?;
        output.line("4. /echo is public:")?;
        output.line(&format!("   curl --cacert {ca} {base}/echo"))?;
        let answer = self.http.get("/echo", None).await?;
        output.line(&format!("   -> {}", answer.summary()))?;
        output.line("")?;
        output.line("5. A disabled client is refused at once, even with a valid token:")?;
        output.line(&format!(
            "   cardea client disable {id} --config {}",
            self.setting.config_file().display()
        ))?;
        Ok(())
    }

    /// Requests a token as the demo's client.
    async fn token(&self, form: Option<&str>) -> Result<client::Answer> {
        let credentials = (self.created.client.client_id.as_str(), self.created.secret.expose());
        let form = format!("grant_type=client_credentials{}", form.unwrap_or_default());
        self.http.post_form("/oauth2/token", credentials, &form).await
    }
}

fn listen(port: u16, option: &str) -> Result<std::net::TcpListener> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    tcp(address).with_context(|| {
        format!(
            "port {port} is in use; stop the process that listens there (`ss -ltnp`), or use {option} 0 for any free port"
        )
    })
}

async fn create_client(server: &Server) -> Result<Created> {
    let issuer = server.provided.issuer.as_ref().context("the demo has no authorization server")?;
    let new = NewClient {
        name: "demo".to_owned(),
        scopes: vec![setting::SCOPE.to_owned()],
        audiences: vec![setting::RESOURCE.to_owned(), setting::OTHER_RESOURCE.to_owned()],
        ..NewClient::default()
    };
    Ok(issuer.create_client(new, server.gateway.clock.precise()).await?)
}
