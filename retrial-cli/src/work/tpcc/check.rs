//! TPC-C's conditions of consistency, 1 to 4 of its clause 3.3.2, and one between stock and orders.

use super::super::Seat;
use super::tables::{DISTRICTS, District, Partner as _, Stocks, Tables, WAREHOUSES, Warehouses};
use miette::Report;
use retrial::{Mode, location};

/// What is wrong in the tables. Settles what sessions that were killed have left.
pub fn wrong(tables: &Tables<'_>, seat: &Seat<'_>) -> Result<Vec<String>, Report> {
    let at = location!("tpcc: check");
    let mut wrong = Vec::new();
    for number in 0..WAREHOUSES {
        let warehouse = tables.partner::<Warehouses>(number, seat, Mode::Exclusive, at)?;
        let stock = tables.partner::<Stocks>(number, seat, Mode::Exclusive, at)?;
        let (mut paid, mut ordered) = (0, 0);
        for district in 0..DISTRICTS {
            let table = tables.district((number, district), seat, Mode::Exclusive, at)?;
            let rows = table.current();
            paid += rows.ytd;
            ordered += rows.units;
            let which = format!("district {}.{}", number + 1, district + 1);
            wrong.extend(of_district(rows).into_iter().map(|what| format!("{which}: {what}")));
        }
        let (number, ytd) = (number + 1, warehouse.current().ytd);
        if ytd != paid {
            wrong.push(format!("condition 1: warehouse {number} has {ytd} of payments, its districts have {paid}"));
        }
        let taken: u64 = stock.current().items.iter().map(|item| item.ytd).sum();
        if taken != ordered {
            let what = format!("stock {number} gave {taken} units, its districts' orders have {ordered}");
            wrong.push(what);
        }
    }
    Ok(wrong)
}

fn of_district(rows: &District) -> Vec<String> {
    let mut wrong = Vec::new();
    let orders = rows.orders.iter().filter(|order| order.id > 0);
    let (last, next) = (orders.clone().map(|order| order.id).max().unwrap_or(0), rows.next_order);
    if last + 1 != next {
        wrong.push(format!("condition 2: the next order is {next}, the last one {last}"));
    }
    let new: Vec<u64> = rows.new_orders.iter().copied().filter(|id| *id > 0).collect();
    if let (Some(first), Some(last_new)) = (new.iter().min(), new.iter().max()) {
        if *last_new != last {
            wrong.push(format!("condition 2: the last order is {last}, the last one to be delivered {last_new}"));
        }
        if last_new - first + 1 != new.len() as u64 {
            wrong.push(format!(
                "condition 3: orders {first} to {last_new} are to be delivered, which are {}",
                new.len()
            ));
        }
    }
    let (lines, expected) =
        (rows.lines.iter().flatten().filter(|line| line.order > 0), orders.map(|order| order.lines));
    let (lines, expected): (usize, u64) = (lines.count(), expected.sum());
    if lines as u64 != expected {
        wrong.push(format!("condition 4: the orders have {expected} lines, {lines} are there"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::tables::{Line, Order};
    use super::*;
    use retrial::zerocopy::FromZeros as _;

    type Break = fn(&mut District);

    #[test]
    fn each_condition_can_fail() {
        let mut rows = District::new_zeroed();
        rows.next_order = 1;
        assert_eq!(of_district(&rows), [""; 0]);
        for id in 1..=3 {
            rows.orders[id] = Order { id: id as u64, customer: 0, lines: 1, carrier: 0 };
            rows.lines[id][0] = Line { order: id as u64, item: 0, quantity: 1, amount: 1 };
            rows.new_orders[id] = id as u64;
        }
        rows.next_order = 4;
        assert_eq!(of_district(&rows), [""; 0]);
        let breaks: [(Break, &str); 4] = [
            (|rows| rows.next_order = 5, "condition 2: the next order is 5, the last one 3"),
            (|rows| rows.new_orders[3] = 0, "condition 2: the last order is 3, the last one to be delivered 2"),
            (|rows| rows.new_orders[2] = 0, "condition 3: orders 1 to 3 are to be delivered, which are 2"),
            (|rows| rows.lines[1][0].order = 0, "condition 4: the orders have 3 lines, 2 are there"),
        ];
        for (break_it, expected) in breaks {
            let mut broken = rows;
            break_it(&mut broken);
            assert_eq!(of_district(&broken), [expected]);
        }
    }
}
