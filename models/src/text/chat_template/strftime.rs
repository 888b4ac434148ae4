//! Dates and times for templates that write them: Python's `strftime`, in UTC and English.
//!
//! `transformers` uses the local time of the machine; here the same prompt means the same on every
//! machine, so it is UTC.
//!
//! Neighbours: [`super::functions`] (`strftime_now`).

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: i64 = 86_400;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// What `strftime_now` takes for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The system's clock.
    System,
    /// A fixed time, in seconds since 1970-01-01 00:00 UTC, so that prompts can be reproduced.
    Fixed(i64),
}

impl Clock {
    /// Seconds since 1970.
    pub(super) fn seconds(self) -> i64 {
        match self {
            Self::Fixed(seconds) => seconds,
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |elapsed| {
                    i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
                }),
        }
    }
}

/// A point in time, in the calendar.
struct DateTime {
    year: i64,
    /// From 0.
    month: usize,
    /// From 1.
    day: i64,
    /// From 1.
    day_of_year: i64,
    /// From 0, Sunday.
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

impl DateTime {
    /// From seconds since 1970. Source: Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    fn new(seconds: i64) -> Self {
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        let second_of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        // Days since 0000-03-01, so that the leap day is the last of its year.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let march_day = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * march_day + 2) / 153;
        let month = if march_month < 10 {
            march_month + 2
        } else {
            march_month - 10
        };
        let year = year_of_era + era * 400 + i64::from(month < 2);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let day_of_year = if month < 2 {
            march_day - 305
        } else {
            march_day + 60 + i64::from(is_leap)
        };
        Self {
            year,
            month: month as usize,
            day: march_day - (153 * march_month + 2) / 5 + 1,
            day_of_year,
            weekday: (days + 4).rem_euclid(7) as usize,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }

    fn hour_of_twelve(&self) -> i64 {
        (self.hour + 11) % 12 + 1
    }
}

/// `datetime.fromtimestamp(seconds, utc).strftime(format)`; the error names the directive that is
/// not supported.
pub(super) fn strftime(format: &str, seconds: i64) -> Result<String, String> {
    let time = DateTime::new(seconds);
    let mut out = String::with_capacity(format.len() * 2);
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        let mut directive = chars.next();
        let is_unpadded = directive == Some('-');
        if is_unpadded {
            directive = chars.next();
        }
        let Some(directive) = directive else {
            return Err("strftime_now: the format ends with `%`".to_owned());
        };
        let value = expand(directive, &time).ok_or_else(|| {
            format!("strftime_now: the directive `%{directive}` is not supported")
        })?;
        let trimmed = value.trim_start_matches('0');
        let is_zero = trimmed.is_empty();
        out.push_str(match (is_unpadded, is_zero) {
            (true, false) => trimmed,
            (true, true) => "0",
            (false, _) => &value,
        });
    }
    Ok(out)
}

fn expand(directive: char, time: &DateTime) -> Option<String> {
    let short = |name: &str| name[..3].to_owned();
    let half = if time.hour < 12 { "AM" } else { "PM" };
    let parts = |format: &[char]| {
        format
            .iter()
            .map(|&d| expand(d, time))
            .collect::<Option<Vec<_>>>()
    };
    Some(match directive {
        'Y' => time.year.to_string(),
        'y' => format!("{:02}", time.year.rem_euclid(100)),
        'm' => format!("{:02}", time.month + 1),
        'B' => MONTHS[time.month].to_owned(),
        'b' | 'h' => short(MONTHS[time.month]),
        'd' => format!("{:02}", time.day),
        'e' => format!("{:2}", time.day),
        'j' => format!("{:03}", time.day_of_year),
        'A' => WEEKDAYS[time.weekday].to_owned(),
        'a' => short(WEEKDAYS[time.weekday]),
        'w' => time.weekday.to_string(),
        'u' => ((time.weekday + 6) % 7 + 1).to_string(),
        'H' => format!("{:02}", time.hour),
        'I' => format!("{:02}", time.hour_of_twelve()),
        'M' => format!("{:02}", time.minute),
        'S' => format!("{:02}", time.second),
        'f' => "000000".to_owned(),
        'p' => half.to_owned(),
        'Z' => "UTC".to_owned(),
        'z' => "+0000".to_owned(),
        'F' => parts(&['Y', 'm', 'd'])?.join("-"),
        'D' | 'x' => parts(&['m', 'd', 'y'])?.join("/"),
        'T' | 'X' => parts(&['H', 'M', 'S'])?.join(":"),
        'R' => parts(&['H', 'M'])?.join(":"),
        'c' => parts(&['a', 'b', 'e', 'T', 'Y'])?.join(" "),
        'n' => "\n".to_owned(),
        't' => "\t".to_owned(),
        '%' => "%".to_owned(),
        _ => return None,
    })
}
