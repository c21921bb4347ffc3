//! What a policy of three comparisons and the lookup of one claim costs in the crate `cel`, to stand beside
//! `cardea-env`'s own bench of that name: `cargo bench --manifest-path bench/Cargo.toml --package bench-micro --bench policy`.
//!
//! It is fed lazily: a resolver hands out text of the request without copying it, and claims that are there already. The
//! claims are in the map that `cel` has for such. What is bound per request is made per request.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use bench_measure::Suite;
use cel::common::types::{CelInt, CelString};
use cel::common::value::{CowVal, Val};
use cel::context::{Context, VariableResolver};
use cel::{Env, Program, Value};

/// Names with underscores: in `cel` those with dots are maps, which would cost a lookup more.
const POLICY: &str = "request_method == 'GET' && request_host == 'api.example.com' && destination_port == 443 \
                      && claims.level >= 3";

struct Request {
    method: String,
    host: String,
    port: i64,
    claims: Box<dyn Val>,
}

impl VariableResolver for Request {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        Some(match name {
            "request_method" => CowVal::owned(CelString::from(&*self.method)),
            "request_host" => CowVal::owned(CelString::from(&*self.host)),
            "destination_port" => CowVal::owned(CelInt::from(self.port)),
            "claims" => CowVal::Borrowed(&*self.claims),
            _ => return None,
        })
    }
}

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    suite.case("policy-3-comparisons-1-claim", |case| {
        let mut claims: HashMap<String, Value> =
            (0..12).map(|place| (format!("claim-{place}"), Value::from(place))).collect();
        claims.insert("level".to_owned(), Value::from(3_i64));
        let claims: Box<dyn Val> = Value::from(claims).try_into().expect("a map");
        let request =
            Request { method: "GET".to_owned(), host: "api.example.com".to_owned(), port: 443, claims };
        let env = Arc::new(Env::stdlib());
        let program = Program::compile(POLICY).expect("it compiles");
        case.counted("cel", || {
            let mut context = Context::with_env(Arc::clone(&env));
            context.set_variable_resolver(black_box(&request));
            let value = program.execute(&context).expect("it evaluates");
            assert_eq!(value, Value::Bool(true));
        });
    });
}
