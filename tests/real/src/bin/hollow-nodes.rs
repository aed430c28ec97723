//! Hollow nodes for manual use: `hollow-nodes KUBECONFIG COUNT [PERIOD_SECONDS [ZONES]]` creates
//! nodes `hollow-0` … with a status and a lease and nothing else, and sends their heartbeats.
//! Commands on standard input: `silence NAME…`, `speak NAME…`, `quit`. The nodes stay when it ends.

use std::io::BufRead as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use real_tests::node_controller::cluster::client_of;
use real_tests::node_controller::hollow::{HollowNodePool, NewNode};

const USAGE: &str = "usage: hollow-nodes KUBECONFIG COUNT [PERIOD_SECONDS [ZONES]]";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| -> Result<u64> {
        arguments.get(at).map_or(Ok(default), |text| text.parse().context(USAGE))
    };
    let kubeconfig = arguments.first().context(USAGE)?;
    let (count, period, zones) = (number(1, 10)?, number(2, 10)?, number(3, 3)?.max(1));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = client_of(Path::new(kubeconfig))?;
        let hollow = HollowNodePool::new(client, Duration::from_secs(period.max(1)));
        let forms = (0..count).map(|number| {
            NewNode::in_zone(&format!("hollow-{number}"), &format!("z{}", number % zones))
        });
        let beating = tokio::spawn(hollow.clone().heartbeat());
        hollow.register(forms.collect()).await?;
        eprintln!("{count} hollow nodes in {zones} zones, a lease every {period} s");
        let (lines, mut commands) = tokio::sync::mpsc::channel::<String>(16);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if lines.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        while let Some(line) = commands.recv().await {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.split_first() {
                Some((&"silence", nodes)) => drop(hollow.stop_heartbeats(nodes)),
                Some((&"speak", nodes)) => hollow.resume_heartbeats(nodes).await?,
                Some((&"quit", _)) => break,
                _ => eprintln!("expected silence NAME…, speak NAME… or quit"),
            }
        }
        beating.abort();
        Ok(())
    })
}
