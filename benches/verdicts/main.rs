//! exploration
mod data; mod fit; mod noise; mod process;
use process::*;
use snaptax::gate::Bounds;
use snaptax::result::{Comparison, Range, Figure};
use statrs::distribution::{ContinuousCDF, StudentsT};
fn range(figs: &[Figure], d0: f64, tau0: f64, q: f64, t5: f64) -> Range {
    let x: Vec<f64> = figs.iter().map(|f| f.ratio.ln()).collect();
    let n = x.len() as f64;
    let se2 = fit::mean(&figs.iter().map(|f| (f.half_width()/t5).powi(2)).collect::<Vec<_>>());
    let s2 = (d0*(tau0*tau0+se2) + (n-1.0)*fit::variance(&x))/(d0+n-1.0);
    let k = StudentsT::new(0.0,1.0,d0+n-1.0).unwrap().inverse_cdf(1.0-q);
    let b = k*(s2*(1.0+1.0/n)).sqrt();
    let m = fit::mean(&x);
    Range{low:(m-b).exp(), high:(m+b).exp()}
}
fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if args.first().is_some_and(|a| a == "--extract") {
        let files: Vec<_> = args[1..].iter().map(Into::into).collect();
        println!("{} runs", data::extract(&files, &data::directory()).unwrap());
        return;
    }
    let runs = data::read(&data::directory(), "oltp_under_a_thick_snapshot").unwrap();
    let fit = fit::fit(&runs).unwrap();
    println!("{fit:#?}");
    let size: usize = args.first().map_or(500, |a| a.parse().unwrap());
    let count: usize = args.get(1).map_or(20000, |a| a.parse().unwrap());
    let t0 = std::time::Instant::now();
    let noise = fit.noise;
    std::thread::scope(|s| { for h in [0.03, 0.05] { s.spawn(move || {
        let mut pool = Pool::new(&noise, h, size, 7, noise::Latencies::None);
        let n = pool.first().len() as f64;
        let cov = pool.first().iter().filter(|m| m.covers()).count() as f64 / n;
        let rounds = pool.first().iter().map(|m| m.comparison.rounds as f64).sum::<f64>() / n;
        let lr: Vec<f64> = pool.first().iter().map(|m| m.comparison.throughput.unwrap().ratio.ln()).collect();
        println!("h {h} coverage {cov} rounds {rounds} est sd {:.4} {:?}", fit::variance(&lr).sqrt(), t0.elapsed());
        for (n, d0, tau0, q) in [(5,8.0,0.015,0.01),(5,8.0,0.01,0.005),(5,4.0,0.01,0.005),(5,4.0,0.01,0.002),(5,2.0,0.01,0.002),(5,6.0,0.015,0.002),(5,6.0,0.02,0.001),(10,4.0,0.01,0.005),(10,4.0,0.01,0.002),(10,8.0,0.015,0.005),(20,4.0,0.01,0.005)] {
            let t5 = if h < 0.04 {2.13} else {2.36};
            let b = move |c: &[Comparison]| Bounds { throughput: range(&c.iter().map(|c| c.throughput.unwrap()).collect::<Vec<_>>(), d0, tau0, q, t5), p95_latency: None, reason: None };
            let mut out = format!("h {h} n {n} d0 {d0} tau0 {tau0} q {q}:");
            for tau in [0.0,0.01,0.015,0.02,0.03,0.035,0.04] {
                let rigs = Rigs{ratio_sd:tau,p95_sd:0.0};
                let a = tally(&mut pool, rigs, 0.0, n, count, 1, &b);
                let l = tally(&mut pool, rigs, if h<0.04 {0.1} else {0.2}, n, count/10, 2, &b);
                let c = count as f64;
                out += &format!("  {tau}: {:.5} {:.2} {:.3} {:.3};", a.fails as f64/c, a.again as f64/c, a.width/c, l.worse as f64/(c/10.0));
            }
            println!("{out}");
        }
        println!("{:?}", t0.elapsed());
    });}});
}
