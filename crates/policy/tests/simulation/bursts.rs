use crate::store::Store;
use machine::Duration;
use policy::peafowl::Params;
#[test]
fn probe() {
    let mut store = Store::new(Params::default(), 1, 7);
    store.connect(8000.0);
    let mut sum = 0.0;
    for _ in 0..300 {
        store.run_for(Duration::from_millis(100));
        sum += store.readings[0].load.as_per_second();
    }
    eprintln!("{} {}", sum / 300.0, store.clients[0].served as f64 / 30.0);
}
