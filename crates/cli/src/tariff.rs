//! The price and the carbon of electricity, as every command takes them.

use report::money::{Carbon, Price, Tariff};

#[derive(clap::Args, Clone, Debug)]
pub struct TariffArgs {
    /// The price of a kWh, such as 0.30/kWh or 0.30EUR/kWh: with it, a year's sums are told
    #[arg(long, value_name = "MONEY/kWh")]
    price: Option<Price>,

    /// The carbon intensity of electricity, such as 350g/kWh: with it, a year's carbon is told
    #[arg(long, value_name = "GRAMS/kWh")]
    carbon: Option<Carbon>,

    /// Servers that do the same, for the year's sums
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    servers: u32,
}

impl TariffArgs {
    pub fn tariff(&self) -> Tariff {
        Tariff { price: self.price.clone(), carbon: self.carbon, servers: self.servers }
    }
}
