//! The powers: watts of the machine for the baselines' work.
//!
//! With its work fitted, each baseline is simulated once more, for the share of time in which any core is
//! awake, A, and the mean number of awake cores, B. Let P be the measured power beyond sleep and
//! D = P / (1 + w P) the same without leakage; then D = a A + b B, with one b for each clock and the
//! same a and w everywhere: weighted least squares, w by a search. Operating points between the measured
//! clocks lie on the power law through their neighbours; a turbo clock on the law through 2.6 GHz and
//! turbo, whose b is taken to be that of its third bin, in which five to eight cores are awake.
//!
//! A sleeping socket's 15.3 W are the authors' `db/nothing`: 27.5 kJ in 1,800 s, at every clock.

use super::{ASLEEP_WATTS, Baseline, Constants, all, hertz};
use anyhow::Result;

/// A baseline's share of time with an awake core and number of awake cores, beside its power.
pub(super) struct Load {
    khz: u64,
    awake: f64,
    cores: f64,
    watts: f64,
}

/// The loads of a campaign's runs, simulated with its work.
pub(super) fn loads(baselines: &[Baseline], constants: &Constants) -> Result<Vec<Load>> {
    let found = all(baselines, constants, 1..4, |run| {
        let covered = run.covered();
        vec![((1.0 - run.outcome.package_asleep) * covered, run.outcome.awake * covered)]
    })?;
    let load = |(baseline, found): (&Baseline, &Vec<(f64, f64)>)| {
        let mean = |of: fn(&(f64, f64)) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
        Load { khz: baseline.khz, awake: mean(|f| f.0), cores: mean(|f| f.1), watts: baseline.watts }
    };
    Ok(baselines.iter().zip(&found).map(load).collect())
}

/// Puts the powers that fit the loads best into the constants.
pub(super) fn fit(loads: &[Load], constants: &mut Constants) {
    let mut clocks: Vec<u64> = loads.iter().map(|load| load.khz).collect();
    clocks.sort_unstable();
    clocks.dedup();
    // The misfit has one valley in w.
    let (mut low, mut high) = (0.0, 0.01);
    while high - low > 1e-5 {
        let thirds = [low + (high - low) / 3.0, high - (high - low) / 3.0];
        let misfits = thirds.map(|warming| powers(loads, &clocks, warming).1);
        if misfits[0] < misfits[1] { high = thirds[1] } else { low = thirds[0] }
    }
    let warming = (low + high) / 2.0;
    let (watts, _) = powers(loads, &clocks, warming);
    constants.warming = warming;
    constants.awake_watts = ASLEEP_WATTS + watts[0];
    let known: Vec<(f64, f64)> =
        clocks.iter().zip(&watts[1..]).map(|(khz, watts)| (hertz(*khz), watts.max(0.05))).collect();
    for point in &mut constants.point {
        point.watts = on_power_law(&known, hertz(point.khz));
    }
    for place in 1..constants.point.len() {
        constants.point[place].watts = constants.point[place].watts.max(constants.point[place - 1].watts);
    }
    for bin in &mut constants.turbo {
        bin.watts = on_power_law(&known, hertz(bin.khz));
    }
}

/// Watts by which an awake socket is above its sleep, and of a core at each clock; and the mean square
/// of the relative errors.
fn powers(loads: &[Load], clocks: &[u64], warming: f64) -> (Vec<f64>, f64) {
    let count = clocks.len() + 1;
    let row = |load: &Load| {
        let beyond = load.watts - ASLEEP_WATTS;
        let cold = beyond / (1.0 + warming * beyond);
        // An error of D is one of P by (1 + w P) squared.
        let weight = (1.0 + warming * beyond).powi(2) / load.watts;
        let mut row = vec![0.0; count];
        row[0] = load.awake * weight;
        row[1 + clocks.iter().position(|khz| *khz == load.khz).unwrap_or(0)] = load.cores * weight;
        (row, cold * weight)
    };
    let rows: Vec<(Vec<f64>, f64)> = loads.iter().map(row).collect();
    let watts = least_squares(&rows, count);
    let error = |(row, wanted): &(Vec<f64>, f64)| {
        (row.iter().zip(&watts).map(|(x, watts)| x * watts).sum::<f64>() - wanted).powi(2)
    };
    let misfit = rows.iter().map(error).sum::<f64>() / rows.len() as f64;
    (watts, misfit)
}

/// The least squares of `rows`, by their normal equations and Gauss's elimination with pivots.
fn least_squares(rows: &[(Vec<f64>, f64)], count: usize) -> Vec<f64> {
    let mut system = vec![vec![0.0; count + 1]; count];
    for (row, wanted) in rows {
        for i in 0..count {
            for j in 0..count {
                system[i][j] += row[i] * row[j];
            }
            system[i][count] += row[i] * wanted;
        }
    }
    for column in 0..count {
        let pivot =
            (column..count).max_by(|a, b| system[*a][column].abs().total_cmp(&system[*b][column].abs()));
        system.swap(column, pivot.unwrap_or(column));
        let pivot = system[column].clone();
        for (_, row) in system.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = if pivot[column] == 0.0 { 0.0 } else { row[column] / pivot[column] };
            row.iter_mut().zip(&pivot).for_each(|(value, of_pivot)| *value -= factor * of_pivot);
        }
    }
    (0..count).map(|place| system[place][count] / system[place][place]).collect()
}

/// Watts at a clock on the power law through the two known ones around it, or the two nearest.
fn on_power_law(known: &[(f64, f64)], hertz: f64) -> f64 {
    if known.len() < 2 {
        return known.first().map_or(f64::NAN, |point| point.1);
    }
    let above = known.iter().position(|point| point.0 >= hertz).unwrap_or(known.len() - 1).max(1);
    let ((low, low_watts), (high, high_watts)) = (known[above - 1], known[above]);
    low_watts * (high_watts / low_watts).powf((hertz / low).ln() / (high / low).ln())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authors::constants::BASE_KHZ;

    #[test]
    fn powers_come_back_from_exact_loads() {
        // a = 20 W, b = 1 W and 6 W, w = 0.004 a watt.
        let load = |khz: u64, awake: f64, cores: f64| {
            let cold = 20.0 * awake + cores * if khz == 1_000_000 { 1.0 } else { 6.0 };
            Load { khz, awake, cores, watts: ASLEEP_WATTS + cold / (1.0 - 0.004 * cold) }
        };
        let loads = [
            load(1_000_000, 0.3, 1.5),
            load(1_000_000, 0.9, 10.0),
            load(BASE_KHZ, 0.2, 1.0),
            load(BASE_KHZ, 0.9, 8.0),
        ];
        let (watts, misfit) = powers(&loads, &[1_000_000, BASE_KHZ], 0.004);
        assert!(misfit < 1e-20, "{misfit}");
        for (found, wanted) in watts.iter().zip([20.0, 1.0, 6.0]) {
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
        assert!(powers(&loads, &[1_000_000, BASE_KHZ], 0.0).1 > 1e-6, "leakage is seen");
    }

    #[test]
    fn a_power_law_is_met_between_its_points_and_beyond() {
        let known = [(1.0, 1.0), (2.0, 4.0)];
        for (hertz, watts) in [(1.0, 1.0), (1.5, 2.25), (2.0, 4.0), (3.0, 9.0)] {
            assert!((on_power_law(&known, hertz) - watts).abs() < 1e-12);
        }
    }
}
